"""`make` and its scripts, without installing anything."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import setup_environment


def make(folder, *targets, path=None, home=None):
    changed = {"PATH": path, "HOME": home}
    return subprocess.run(
        ["make", *targets],
        cwd=folder,
        env={**os.environ, **{name: str(value) for name, value in changed.items() if value}},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def clone(root, tmp_path):
    """Makefile and set-up scripts in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    for name in (
        "Makefile",
        "requirements/base.lock",
        "requirements/run.lock",
        "requirements/engines.lock",
        "requirements/horovod.txt",
        "setup_environment.py",
        "runtime/setup/horovod.sh",
        "runtime/cluster/horovodrun.py",
        "runtime/setup/engines.sh",
        *(str(p.relative_to(root)) for p in root.glob("runtime/setup/horovod_patches/*")),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((root / name).read_bytes())
    program(
        folder / "op_build",
        "install.sh",
        '[ "$2" = --objects ] || { echo op >>built; touch "$2"; }',
    )
    return folder


def program(folder, name, script):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def test_help(root):
    listed = re.findall(r"^  make (\S+)", make(root, "help").stdout, re.MULTILINE)
    assert listed == re.findall(r"^([a-z-]+):(?!=)", (root / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "test-ranks", "bench", "setup"} <= set(listed)


def test_ci_script(root):
    """Together the targets run every test."""
    assert (root / ".ci/run").stat().st_mode & stat.S_IXUSR
    commands = [line.split(" >")[0] for line in (root / ".ci/run").read_text().splitlines()]
    assert "set -euo pipefail" in commands and commands[-1] == "make test"
    targets = ("lint", "docs", "test-ranks", "test-serve", "test-cluster", "test-newest")
    assert {f"make {target}" for target in targets} <= set(commands)
    makefile = (root / "Makefile").read_text()
    folders = ("ranks", "serving", "cluster")
    ignored = " ".join(f"--ignore=tests/{folder}" for folder in folders)
    assert f"pytest tests distributed-embeddings/tests {ignored}\n" in makefile
    assert all(f"pytest tests/{folder}\n" in makefile for folder in folders)


def test_shell_scripts(root):
    """By ShellCheck, which makes warnings of what quoting and exit codes lose."""
    listed = subprocess.run(
        ["git", "ls-files", "*.sh", ".ci/run"], cwd=root, capture_output=True, text=True, check=True
    )
    scripts = listed.stdout.splitlines()
    assert {"slurm_multinode.sh", ".ci/run"} <= set(scripts)
    checked = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "--external-sources", "--format=gcc"]
        + ["--source-path=SCRIPTDIR", "--severity=warning", *scripts],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("lock_file", "requirement_files"),
    [
        ("base", ("requirements.txt", "requirements/run.txt", "requirements/dev.txt")),
        ("run", ("requirements/run.txt",)),
        ("floor", ("requirements/floor.txt", "requirements/dev.txt")),
        ("docs", ("requirements/docs.txt",)),
        ("engines", ("requirements/engines.txt",)),
        ("serve", ("requirements/serve.txt",)),
    ],
)
def test_lock(root, lock_file, requirement_files):
    """Every name is pinned for every Python of the first line, in a version that fits."""
    lock = root / f"requirements/{lock_file}.lock"
    versions = setup_environment.supported_versions(lock)
    lines = setup_environment.lines_of(lock)
    folders = [line for line in lines if line.startswith("-e")]
    pins = [Requirement(line) for line in lines if line not in folders]
    assert all(re.fullmatch(r"==[^=,]+", str(pin.specifier)) for pin in pins)
    wanted = [
        Requirement(line.partition("#")[0].strip())
        for file in requirement_files
        for line in (root / file).read_text().splitlines()
        if line.strip() and not line.startswith(("#", "-"))
    ]
    for version in versions:
        marked = {"python_full_version": f"{setup_environment.dotted(version)}.1"}
        marked["python_version"] = setup_environment.dotted(version)
        pinned = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(marked)]
        by_name = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pinned}
        assert len(by_name) == len(pinned), "a package is pinned twice"
        for requirement in wanted:
            if requirement.marker is not None and not requirement.marker.evaluate(marked):
                continue
            assert requirement.specifier.contains(by_name[canonicalize_name(requirement.name)])


def test_locks_of_a_training(root):
    """The lock of a first run is a part of the one of the set-up, which installs the rest; the
    package `tensorflow`, on which tf-keras depends, would bring a second TensorFlow."""
    lines = {}
    for name, version in (("base", "2.21.0"), ("run", "2.21.0"), ("floor", "2.15.1")):
        lines[name] = setup_environment.lines_of(root / f"requirements/{name}.lock")
        assert f"tensorflow-cpu=={version}" in lines[name]
        assert not any(line.startswith("tensorflow==") for line in lines[name])
    assert set(lines["run"]) < set(lines["base"]) and len(lines["run"]) < len(lines["base"]) / 2


@pytest.fixture
def tools(tmp_path):
    """Programs of make and of scripts, and nothing else, for a PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("bash", "make", "env", "rm", "cp", "cat", "grep", "touch"):
        (folder / name).symlink_to(shutil.which(name))
    (folder / "python3").symlink_to(sys.executable)
    program(folder, "g++", "exit 0")
    return folder


def stand_in(version, has_venv=True):
    """A Python that describes itself, and makes environments whose pip writes to `calls`.

    The environment's Python is the file `.venv` next to it, if there is one.
    """
    facts = json.dumps({"version": [3, version], "venv": has_venv})
    return f"""answer() {{ [[ "$2" == *ensurepip* ]] && echo '{facts}' || echo "base {version}"; }}
if [ "$1" = -c ]; then
  answer "$@"
elif [ "$2" = venv ]; then
  echo "made with 3.{version}" >>calls
  mkdir -p .venv/bin
  [ -e "$0.venv" ] && cp "$0.venv" .venv/bin/python || cp "$0" .venv/bin/python
else
  echo "$@" >>calls
fi"""


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3.13": 13, "python3.11": 11}, "3.13"),
        ({"python3.11": 11, "python3": 12}, "3.12"),
        ({"python3.12": None, "python3.10": 10}, "3.10"),  # pyenv has programs that only fail
        ({"python3": 14, "python3.11": 11}, "3.11"),
    ],
)
def test_choice_of_python(root, tmp_path, monkeypatch, pythons, chosen):
    """The newest on the PATH that the lock is made for, under any name."""
    for name, version in pythons.items():
        program(tmp_path, name, stand_in(version) if version else "exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    described = setup_environment.describe

    def of_this_test(python):
        return described(python) if python.startswith(str(tmp_path)) else None

    monkeypatch.setattr(setup_environment, "describe", of_this_test)
    python, version = setup_environment.find_python(root / "requirements/base.lock")
    assert setup_environment.dotted(version) == chosen
    assert Path(python).parent == tmp_path
    # Of an activated environment, which is about to be replaced, the Python below it.
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python3.13").symlink_to(python)
    monkeypatch.setenv("PATH", f"{tmp_path}/venv:/usr/bin:/bin")
    assert setup_environment.find_python(root / "requirements/base.lock")[0] == python


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("absent", r"no Python that fits requirements/run.lock.* absent \(not found\).*PYTHON="),
        (stand_in(8), r"looked for \S+/python \(3.8\)"),
        (stand_in(13, has_venv=False), r"no module venv or ensurepip.*install python3.13-venv"),
    ],
)
def test_unusable_python(clone, tools, tmp_path, python, message):
    """An environment that is there stays."""
    if python != "absent":
        program(tmp_path / "named", "python", python)
        python = tmp_path / "named/python"
    (clone / ".venv").mkdir()
    (clone / ".venv/old").touch()
    done = make(clone, "setup", f"PYTHON={python}", path=str(tools))
    messages = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    assert done.returncode != 0
    assert len(messages) == 1 and re.search(message, messages[0]), done.stderr
    assert (clone / ".venv/old").exists()


def test_repeated_set_up(clone, tmp_path):
    """An environment is made once, and again for another Python, lock or TensorFlow."""
    for version in (12, 13):
        program(tmp_path / f"3.{version}", "python", stand_in(version))
    flags = ("HOROVOD=no", "ENGINES=no")

    def calls(*arguments):
        (clone / "calls").unlink(missing_ok=True)
        done = make(clone, "setup", *flags, *arguments)
        assert done.returncode == 0, done.stderr
        return (clone / "calls").read_text() if (clone / "calls").exists() else ""

    old, new = (f"PYTHON={tmp_path}/3.{version}/python" for version in (12, 13))
    first = calls(old)
    assert first.startswith("made with 3.12\n-m pip install") and first.count("made") == 1
    assert calls(old) == calls() == ""
    assert (clone / "built").read_text() == "op\n"
    assert calls(new).startswith("made with 3.13")
    os.utime(clone / "requirements/base.lock", (2**31, 2**31))
    assert calls(new).startswith("made with 3.13")
    os.utime(clone / "requirements/base.lock")
    (clone / "requirements/own.lock").write_text("# Python: 3.13\nnumpy==1.0\n")
    assert "made" in calls(new, "LOCK=requirements/own.lock")
    assert calls(new) == "", "the lock of the environment is kept"
    installed = calls(new, "LOCK=requirements/base.lock", "TENSORFLOW=tensorflow[and-cuda]==2.21.0")
    assert "tensorflow[and-cuda]==2.21.0 --constraint" in installed
    lines = (clone / ".venv/requirements.txt").read_text()
    assert "numpy==" in lines and "tensorflow-cpu" not in lines


def test_link_to_an_environment(clone, tmp_path):
    """It is used unchanged, and never deleted."""
    program(tmp_path / "shared/bin", "python", "touch called")
    (clone / ".venv").symlink_to(tmp_path / "shared")
    done = make(clone, "setup", "HOROVOD=no", "ENGINES=no")
    assert done.returncode == 0, done.stderr
    assert (clone / ".venv").is_symlink() and not (clone / "called").exists()


@pytest.mark.parametrize(
    ("missing", "has_wheel"), [("g++", False), ("g++", True), ("sha256sum", False)]
)
def test_op_without_a_tool(root, clone, tools, missing, has_wheel):
    """The set-up succeeds and prints the cost of the missing op; a wheel from elsewhere is kept."""
    script = "op_build/install.sh"
    shutil.copy(root / script, clone / script)
    (clone / ".venv/bin").mkdir(parents=True)
    program(clone / ".venv/bin", "python", "exit 0" if has_wheel else "exit 1")
    for stamp in ("run", "installed"):
        (clone / ".venv" / stamp).write_text("requirements/base.lock\n")
    for name in programs_of(clone / script):
        if not (tools / name).exists():
            (tools / name).symlink_to(shutil.which(name))
    (tools / missing).unlink(missing_ok=True)
    done = make(clone, "setup", "HOROVOD=no", "ENGINES=no", path=str(tools))
    assert done.returncode == 0, done.stderr
    *notes, end = done.stdout.splitlines()
    assert [note.partition(",")[0] for note in notes] == [f"op: no {missing} found"] * (
        not has_wheel
    )
    assert end.startswith("setup: done") and done.stderr == ""
    assert (clone / ".venv/op").exists() == has_wheel, "looked for again by the next make"
    done = make(clone, "setup", "HOROVOD=no", "ENGINES=no", "CUDA=1", path=str(tools))
    assert done.returncode != 0 and f"op: no {missing} found, which CUDA=1 needs" in done.stderr


def programs_of(script):
    """Returns the programs that the script looks for, but for the compiler."""
    line = re.search(r'^for program in "\S+" (.*); do$', script.read_text(), re.MULTILINE)
    return line[1].split()


STAND_IN = """
# In place of Python with pip: notes its commands, and makes a file where pip makes one.
import os, pathlib, sys, tarfile
args = sys.argv[1:]
place = pathlib.Path.cwd()
def calls(text):
    with open(place / "calls", "a") as file:
        file.write(text + "\\n")
if args[0] == "-c":
    if "import horovod" not in args[1]:
        print(os.environ.get("STAND_IN_FACTS", "tensorflow-2.15.1-cpu-cpython-311-linux-x86_64"))
    sys.exit()
command = args[args.index("--disable-pip-version-check") + 1]
if command == "install" and "--no-index" in args:
    calls("install " + pathlib.Path(args[-1]).read_text())
    script = "#!/usr/bin/python\\n# -*- coding: utf-8 -*-\\nimport horovod\\n"
    (place / ".venv/bin/horovodrun").write_text(script)
    sys.exit("damaged" in pathlib.Path(args[-1]).read_text())
if command == "download":
    work = pathlib.Path(args[args.index("--dest") + 1])
    # The lines that the patches expect.
    with tarfile.open(work / "horovod-0.28.1.tar.gz", "w:gz") as tar:
        for patch in place.glob("runtime/setup/horovod_patches/*.patch"):
            _, _, body = patch.read_text().partition("--- a/")
            name, *lines = body.splitlines()
            source = work / "source"
            before = "".join(f"{line[1:]}\\n" for line in lines[2:] if line[:1] in "- ")
            source.write_text(os.environ.get("STAND_IN_SOURCE", before))
            tar.add(source, f"horovod-0.28.1/{name}")
if command == "wheel":
    gloo = pathlib.Path(args[-1], "horovod/common/gloo/gloo_controller.cc").read_text()
    ops = pathlib.Path(args[-1], "horovod/tensorflow/CMakeLists.txt").read_text()
    source = "patched" if "resize(size_)" in gloo and "xla_mpi_ops" not in ops else "unpatched"
    mpi = "mpi" if "HOROVOD_WITH_MPI" in os.environ else "no mpi"
    calls(f"build {source} {mpi} {os.environ['HOROVOD_LOCAL_VERSION']}")
    if "STAND_IN_FAILS" in os.environ:
        sys.exit("error: the compiler fails")
    folder = pathlib.Path(args[args.index("--wheel-dir") + 1])
    folder.mkdir()
    (folder / "horovod-0.28.1+stall-cp311-cp311-linux_x86_64.whl").write_text("a wheel")
"""


@pytest.fixture
def set_up_horovod(clone, tmp_path):
    """Runs horovod.sh with a stand-in for Python; returns the process and its commands."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        *("bash", "grep", "mktemp", "ln", "rm", "nproc", "tar", "gzip", "sed", "mkdir", "cp", "mv"),
        *("cat", "cut", "sha256sum", "patch", "git", "cmake", "touch"),
    ):
        (tools / name).symlink_to(shutil.which(name) or shutil.which("true"))
    for name in ("g++", "mpicxx", "mpirun"):
        program(tools, name, "")
    (clone / ".venv/bin").mkdir(parents=True)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    # Not as the script's interpreter, whose path must not have a space.
    program(clone / ".venv/bin", "python", f'exec "{sys.executable}" "{tmp_path}/stand_in.py" "$@"')

    def run(*args, **env):
        (clone / "calls").unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", "runtime/setup/horovod.sh", *args],
            cwd=clone,
            env={"PATH": str(tools), "HOME": str(tmp_path), **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        calls = clone / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    return run


BUILT = ["build patched mpi stall", "install a wheel"]


def kept(tmp_path):
    return sorted((tmp_path / ".cache/recommenders-at-scale").glob("*"))


def test_build_of_horovod(set_up_horovod, tmp_path, clone, root):
    ours = (root / "runtime/cluster/horovodrun.py").read_text()
    done, calls = set_up_horovod()
    assert (done.returncode, calls) == (0, BUILT), done.stderr
    assert "building Horovod with gloo and mpi" in done.stdout
    assert (clone / ".venv/bin/horovodrun").read_text() == f"#!/usr/bin/python\n{ours}"
    (folder,) = kept(tmp_path)
    facts = "tensorflow-2.15.1-cpu-cpython-311-linux-x86_64-gloo-mpi"
    assert re.fullmatch(rf"horovod-0\.28\.1\+stall-[0-9a-f]{{8}}-{facts}", folder.name)
    done, calls = set_up_horovod()
    assert (done.returncode, calls, done.stdout) == (0, ["install a wheel"], "")
    assert (clone / ".venv/bin/horovodrun").read_text() == f"#!/usr/bin/python\n{ours}"
    # Another TensorFlow needs a build of its own, and so does a machine without MPI.
    done, calls = set_up_horovod(STAND_IN_FACTS="tensorflow-2.16.1-cpu-cpython-311-linux-x86_64")
    assert (done.returncode, calls) == (0, BUILT)
    (tmp_path / "tools/mpirun").unlink()
    done, calls = set_up_horovod()
    assert calls == ["build patched no mpi stall", "install a wheel"]
    assert len(kept(tmp_path)) == 3


SOURCES = {"STAND_IN_SOURCE": "another version of Horovod"}


@pytest.mark.parametrize(
    ("env", "if_missing"), [({"STAND_IN_FAILS": "1"}, ("warn",)), (SOURCES, ())]
)
def test_failed_build(set_up_horovod, clone, tmp_path, env, if_missing):
    done, _ = set_up_horovod(*if_missing, **env)
    assert (done.returncode == 0) == bool(if_missing)
    first, second = done.stderr.splitlines()
    assert first.startswith("setup: Horovod 0.28.1 could not be installed for tensorflow-2.15.1-")
    assert first.endswith(" with gloo and mpi: see the end of .venv/horovod_build.log")
    assert second.endswith(" make setup HOROVOD=no")
    assert kept(tmp_path) == [] and not (clone / ".venv/horovod").exists()
    if "STAND_IN_FAILS" in env:
        assert "the compiler fails" in (clone / ".venv/horovod_build.log").read_text()


def test_horovod_without_a_compiler(set_up_horovod, clone, tmp_path):
    """A kept wheel is installed; without one, nothing is downloaded."""
    (tmp_path / "tools/g++").rename(tmp_path / "g++")
    done, calls = set_up_horovod()
    assert (done.returncode, calls, done.stdout) == (1, [], "")
    assert "with gloo and mpi: no C++ compiler (g++) found; install one" in done.stderr
    assert set_up_horovod("warn")[0].returncode == 0
    assert set_up_horovod(CXX=str(tmp_path / "g++"))[1] == BUILT
    assert set_up_horovod()[1] == ["install a wheel"]
    assert (clone / ".venv/horovod").exists()


def test_set_up_without_horovod(clone, tmp_path):
    """The build fails: a warning of `make setup`, which tries again, and an error of tests."""
    tools = tmp_path / "tools"
    program(tools, "python", stand_in(13))
    no_tensorflow = '[[ "$*" != *"import sys, sysconfig, tensorflow"* ]]'
    program(tools, "python.venv", f'[ "$1" = -m ] || {no_tensorflow}')
    flags = (f"PYTHON={tools / 'python'}", "ENGINES=no", "TEST_WORKERS=0")
    for target in ("setup", "setup", "test-ranks", "test-cluster"):
        done = make(clone, target, *flags, home=tmp_path)
        assert (done.returncode == 0) == (target == "setup"), done.stderr
        assert done.stderr.count("Horovod 0.28.1 could not be installed") == 1
        assert not (clone / ".venv/horovod").exists()
    (clone / "data/demo").mkdir(parents=True)
    (clone / "data/demo/feature_spec.yaml").touch()
    done = make(clone, "demo", *flags, home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("fails_at", "message"),
    [
        (None, None),
        ("pip<26.3", "an older pip could not be installed"),
        ("--no-deps", "pip could not install requirements/engines.lock"),
    ],
)
def test_engines(clone, tools, fails_at, message):
    """A stand-in for Python with pip; a set-up that failed is done again by the next `make`."""
    set_up_except_engines(clone)
    refusal = f'[[ "$*" != *"{fails_at}"* ]]' if fails_at else "true"
    program(tools, "python3.11", engines_python("3.11", f'echo "$@" >>calls; {refusal}'))
    for _ in range(2):
        done = make(clone, "setup", "HOROVOD=no", path=tools)
        assert (done.returncode == 0) == (fails_at is None), done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    calls = (clone / "calls").read_text().splitlines()
    assert calls[0].endswith("install --quiet pip<26.3")
    if fails_at is None:
        assert (len(calls), messages) == (2, [])
        assert calls[1].endswith("--no-deps --requirement .venv-engines/requirements.txt")
    else:
        assert calls[0] == calls[len(calls) // 2], "done again"
        assert len(messages) == 1 and re.search(f"{message}.* make setup ENGINES=no", messages[0])


def set_up_except_engines(clone):
    (clone / ".venv/bin").mkdir(parents=True)
    for stamp in ("run", "installed", "op"):
        (clone / ".venv" / stamp).touch()


def engines_python(version, pip="true"):
    """A Python that names its version, and makes environments whose `python` runs `pip`."""
    return f"""[ "$1" = -c ] && echo {version} && exit
{shutil.which("mkdir")} -p "$3/bin"
cat >"$3/bin/python" <<'END'
#!/bin/bash
{pip}
END
{shutil.which("chmod")} +x "$3/bin/python"
echo {version} >"$3/made_with"
"""
