"""`make` and its scripts, without installing anything."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest


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
        "requirements/engines.lock",
        "requirements/horovod.txt",
        "runtime/setup/setup.sh",
        "runtime/setup/horovod.sh",
        "runtime/cluster/horovodrun.py",
        "runtime/setup/engines.sh",
        *(str(p.relative_to(root)) for p in root.glob("runtime/setup/horovod_patches/*")),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((root / name).read_bytes())
    program(folder / "tensorflow-dot-based-interact", "install.sh", "echo op >>built")
    return folder


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def test_help(root):
    listed = re.findall(r"^  make (\S+)", make(root, "help").stdout, re.MULTILINE)
    assert listed == re.findall(r"^([a-z-]+):(?!=)", (root / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "test-ranks", "bench", "setup"} <= set(listed)


def test_ci_script(root):
    assert (root / ".ci/run").stat().st_mode & stat.S_IXUSR
    commands = (root / ".ci/run").read_text().splitlines()
    assert "set -euo pipefail" in commands
    assert commands[-7:] == [
        *("make cluster-setup", "make lint", "make docs", "make test-ranks"),
        *("make test-serve", "make test-cluster", "make test"),
    ]
    makefile = (root / "Makefile").read_text()
    ignored = " ".join(f"--ignore=tests/{folder}" for folder in ("ranks", "serving", "cluster"))
    assert f"pytest tests {ignored}\n" in makefile
    assert "pytest tests/ranks\n" in makefile
    assert "pytest tests/serving\n" in makefile
    assert "pytest tests/cluster\n" in makefile


def test_shell_scripts(root):
    """By ShellCheck, which makes warnings of what quoting and exit codes lose."""
    listed = subprocess.run(
        ["git", "ls-files", "*.sh", ".ci/run"], cwd=root, capture_output=True, text=True, check=True
    )
    scripts = listed.stdout.splitlines()
    assert {"slurm_multinode.sh", ".ci/run", "runtime/host_discovery.sh"} <= set(scripts)
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
        ("requirements/base.lock", ("requirements.txt", "requirements/dev.txt")),
        ("requirements/engines.lock", ("requirements/engines.txt",)),
    ],
)
def test_lock(root, lock_file, requirement_files):
    lock = (root / lock_file).read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^=\s]+", line) for line in lock), lock
    names = _package_names(lock)
    for file in requirement_files:
        for line in (root / file).read_text().splitlines():
            if line and not line.startswith("#"):
                pin = re.sub(r"\[.*?\]", "", line.split()[0])  # without extras
                assert re.split("[=<]", pin)[0].lower() in names
                assert "==" not in pin or pin in lock


def test_overlap_of_the_locks(root):
    base, added = (
        (root / file).read_text().splitlines()[1:]
        for file in ("requirements/base.lock", "requirements/engines.lock")
    )
    assert "tensorflow-cpu==2.15.1" in base
    assert {"pyspark==3.5.9", "nvtabular==23.8.0"} <= set(added)
    assert not _package_names(base) & _package_names(added)


def _package_names(lock):
    return {line.split("==")[0].lower().replace("_", "-") for line in lock}


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("python", "no python3.11 found; install it .*apt-get install python3.11"),
        ("compiler", r"no C\+\+ compiler .* found.*apt-get install g\+\+"),
        ("version", "Python 3.11 is needed .* is 3.8; install python3.11"),
        ("venv", "cannot make virtual environments.*apt-get install python3.11-venv"),
    ],
)
def test_missing_programs(clone, tmp_path, missing, message):
    tools = tmp_path / "tools"
    for name in ("bash", "make", "env", "rm", "cp", "grep", "touch"):
        location = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        tools.mkdir(exist_ok=True)
        (tools / name).symlink_to(location.stdout.strip())
    if missing != "python":
        version = "3.8" if missing == "version" else "3.11"
        ensurepip = "exit 1" if missing == "venv" else "exit 0"
        check = f'[[ "$2" == *ensurepip* ]] && {ensurepip}; echo {version}'
        program(tools, "python3.11", check)
    if missing != "compiler":
        program(tools, "g++", "exit 0")
    done = make(clone, "setup", path=str(tools))
    assert done.returncode != 0
    messages = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    assert len(messages) == 1 and re.search(message, messages[0]), done.stderr


def test_repeated_set_up(clone, tmp_path):
    """A stand-in for Python counts how often an environment is made."""
    tools = tmp_path / "tools"
    program(
        tools,
        "python",
        'if [ "$1" = -m ] && [ "$2" = venv ]; then echo made >>calls; mkdir -p .venv/bin; '
        'printf "#!/bin/bash\\n[ \\$1 != -c ] || { echo 3.11; exit; }\\n'
        'cp \\"\\${@: -1}\\" got.txt\\necho Collecting it" >.venv/bin/python; '
        "chmod +x .venv/bin/python; else echo 3.11; fi",
    )
    flags = (f"PYTHON={tools / 'python'}", "HOROVOD=no", "ENGINES=no")
    for expected in (1, 1):
        done = make(clone, "setup", *flags)
        assert done.returncode == 0, done.stderr
        assert (clone / "calls").read_text().count("made") == expected
        assert (clone / "built").read_text().count("op") == expected
    program(tmp_path / "other", "python", "echo 3.12")
    other = make(clone, "setup", f"PYTHON={tmp_path / 'other/python'}", *flags[1:])
    assert other.returncode != 0 and "Python 3.11 is needed" in other.stderr
    assert (clone / ".venv/installed").exists(), "the environment stays"
    os.utime(clone / "requirements/base.lock", (2**31, 2**31))
    make(clone, "setup", *flags)
    assert (clone / "calls").read_text().count("made") == 2
    assert (clone / "built").read_text().count("op") == 2
    make(clone, "-B", "setup", *flags, "TENSORFLOW=tensorflow[and-cuda]==2.15.1")
    installed = (clone / "got.txt").read_text()
    assert "tensorflow[and-cuda]==2.15.1" in installed
    assert "tensorflow-cpu" not in installed


@pytest.mark.parametrize("fits", [True, False])
def test_link_to_an_environment(clone, tmp_path, fits):
    """It is used where it has the packages of the lock; it is never deleted."""
    python = tmp_path / "tools"
    program(python, "python", "echo 3.11")
    (tmp_path / "shared").mkdir()
    program(tmp_path / "shared/bin", "python", f"echo 3.11; {'true' if fits else 'echo x; false'}")
    (clone / ".venv").symlink_to(tmp_path / "shared")
    done = make(clone, "setup", f"PYTHON={python / 'python'}", "HOROVOD=no", "ENGINES=no")
    assert (clone / ".venv").is_symlink() and (tmp_path / "shared/bin/python").exists()
    assert (done.returncode == 0) == fits
    message = "used unchanged" if fits else "lacks packages of requirements/base.lock"
    assert f"setup: .venv is a link to {tmp_path}/shared" in done.stdout + done.stderr
    assert message in done.stdout + done.stderr


def test_progress_of_the_installation(root):
    """A line for every 20 packages, and one for a large file."""
    printed = [f"Collecting p{i}" for i in range(60)]
    printed += ["  Downloading tensorflow_cpu-2.15.1-cp311.whl (207.3 MB)", "Collecting q"]
    printed += ["  Downloading small.whl (3.1 MB)", "Installing collected packages: p0, p1"]
    text = (root / "runtime/setup/setup.sh").read_text()
    (function,) = re.findall(r"^show_progress\(\) \{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        ["bash", "-euc", f"{function}\nshow_progress 61"],
        input="\n".join(printed) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "setup: 20 of 61 packages",
        "setup: 40 of 61 packages",
        "setup: 60 of 61 packages",
        "setup: downloading tensorflow_cpu-2.15.1-cp311.whl (207.3 MB)",
        "setup: unpacking 61 packages",
    ]


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


def test_build_of_horovod(set_up_horovod, tmp_path):
    done, calls = set_up_horovod()
    assert (done.returncode, calls) == (0, BUILT), done.stderr
    assert "building Horovod with gloo and mpi" in done.stdout
    (folder,) = kept(tmp_path)
    assert re.fullmatch(
        r"horovod-0\.28\.1\+stall-[0-9a-f]{8}-tensorflow-2\.15\.1-cpu-cpython-311-linux-x86_64"
        "-gloo-mpi",
        folder.name,
    )
    done, calls = set_up_horovod()
    assert (done.returncode, calls, done.stdout) == (0, ["install a wheel"], "")
    # Another TensorFlow needs a build of its own, and so does a machine without MPI.
    done, calls = set_up_horovod(STAND_IN_FACTS="tensorflow-2.16.1-cpu-cpython-311-linux-x86_64")
    assert (done.returncode, calls) == (0, BUILT)
    (tmp_path / "tools/mpirun").unlink()
    done, calls = set_up_horovod()
    assert calls == ["build patched no mpi stall", "install a wheel"]
    assert len(kept(tmp_path)) == 3


def test_horovodrun(set_up_horovod, clone, root):
    for _ in range(2):  # built, and from the cache
        set_up_horovod()
        ours = (root / "runtime/cluster/horovodrun.py").read_text()
        assert (clone / ".venv/bin/horovodrun").read_text() == f"#!/usr/bin/python\n{ours}"


def test_damaged_horovod(set_up_horovod, tmp_path):
    set_up_horovod()
    (wheel,) = kept(tmp_path)[0].glob("*.whl")
    wheel.write_text("damaged")
    done, calls = set_up_horovod()
    assert (done.returncode, calls) == (0, ["install damaged", *BUILT]), done.stderr
    assert "cannot be used, building Horovod again" in done.stdout
    assert [file.read_text() for file in kept(tmp_path)[0].glob("*")] == ["a wheel"]


def test_patches_without_patch(set_up_horovod, tmp_path):
    """Debian's g++ does not install `patch`; a clone has git."""
    (tmp_path / "tools/patch").unlink()
    done, calls = set_up_horovod()
    assert (done.returncode, calls) == (0, BUILT), done.stderr


def test_unwritable_cache(set_up_horovod, tmp_path):
    (tmp_path / ".cache").write_text("a file where the folder should be")
    done, calls = set_up_horovod()
    assert (done.returncode, calls) == (0, BUILT), done.stderr


def test_nccl(set_up_horovod, tmp_path):
    program(tmp_path / "tools", "nvcc", "")
    program(tmp_path / "tools", "g++", "[ -e nccl.h ]")
    cuda = "tensorflow-2.15.1-cuda-cpython-311-linux-x86_64"
    set_up_horovod(STAND_IN_FACTS=cuda)
    assert kept(tmp_path)[-1].name.endswith("-gloo-mpi"), "no header of NCCL"
    program(tmp_path / "tools", "g++", "")
    set_up_horovod(STAND_IN_FACTS=cuda)
    assert kept(tmp_path)[-1].name.endswith("-gloo-mpi-NCCL")
    _, calls = set_up_horovod(STAND_IN_FACTS=cuda, HOROVOD_GPU_OPERATIONS="")
    assert calls == ["install a wheel"], "the user may do without"


SOURCES = {"STAND_IN_SOURCE": "another version of Horovod"}


@pytest.mark.parametrize("if_missing", [(), ("warn",)])
@pytest.mark.parametrize("env", [{"STAND_IN_FAILS": "1"}, SOURCES])
def test_failed_build(set_up_horovod, clone, tmp_path, env, if_missing):
    done, _ = set_up_horovod(*if_missing, **env)
    assert (done.returncode == 0) == bool(if_missing)
    assert re.fullmatch(
        r"setup: Horovod 0\.28\.1 could not be installed for "
        r"tensorflow-2\.15\.1-cpu-cpython-311-linux-x86_64 with gloo and mpi: "
        r"see the end of \.venv/horovod_build\.log\n"
        r"setup: training on several processes .* everything else works .* make setup HOROVOD=no\n",
        done.stderr,
    )
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
    program(
        tools,
        "python",
        'if [ "$1" = -m ]; then mkdir -p .venv/bin; printf "#!/bin/bash\n'
        r'[[ "\$*" != *\"import sys, sysconfig, tensorflow\"* ]]" >.venv/bin/python; '
        "chmod +x .venv/bin/python; else echo 3.11; fi",
    )
    flags = (f"PYTHON={tools / 'python'}", "TEST_WORKERS=0")
    for _ in range(2):
        done = make(clone, "setup", *flags, home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Horovod 0.28.1 could not be installed: see the end of") == 1
        assert (clone / ".venv/engines").exists() and not (clone / ".venv/horovod").exists()
    for target in ("test-ranks", "test-cluster", "bench-ranks"):
        done = make(clone, target, *flags, home=tmp_path)
        assert done.returncode != 0 and "Horovod 0.28.1 could not be installed" in done.stderr
    (clone / "data/demo").mkdir(parents=True)
    (clone / "data/demo/feature_spec.yaml").touch()
    done = make(clone, "demo", *flags, home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("fails_at", "message"),
    [
        (None, None),
        ("pip<26.3", "pip 26.3 cannot install NVTabular, and an older pip could not be installed"),
        ("engines.lock", "pip could not install requirements/engines.lock .*python3.11-dev"),
    ],
)
def test_engines(clone, fails_at, message):
    """A stand-in for Python with pip; a set-up that failed is done again by the next `make`."""
    (clone / ".venv").mkdir()
    (clone / ".venv/installed").touch()
    (clone / ".venv/op").touch()
    refusal = f'[[ "$*" != *"{fails_at}"* ]]' if fails_at else "true"
    program(clone / ".venv/bin", "python", f'echo "$@" >>calls; {refusal}')
    for _ in range(2):
        done = make(clone, "setup", "HOROVOD=no")
        assert (done.returncode == 0) == (fails_at is None), done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    calls = (clone / "calls").read_text().splitlines()
    assert calls[0].endswith("install --quiet pip<26.3")
    if fails_at is None:
        assert (len(calls), messages) == (2, [])
        assert calls[1].endswith(
            "--requirement requirements/engines.lock --constraint requirements/base.lock"
        )
    else:
        assert calls[0] == calls[len(calls) // 2], "done again"
        assert len(messages) == 1 and re.search(f"{message}.* make setup ENGINES=no", messages[0])
