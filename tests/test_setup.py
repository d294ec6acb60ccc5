"""`make` and the scripts behind it, without installing anything."""

import os
import re
import stat
import subprocess

import pytest


def make(folder, *targets, path=None):
    return subprocess.run(
        ["make", *targets],
        cwd=folder,
        env={**os.environ, **({"PATH": path} if path else {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def clone(root, tmp_path):
    """Makefile and set-up scripts in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    (folder / "runtime").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "runtime/setup.sh"):
        (folder / name).write_bytes((root / name).read_bytes())
    return folder


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def test_help_lists_every_target(root):
    listed = re.findall(r"^  make (\S+)", make(root, "help").stdout, re.MULTILINE)
    assert listed == re.findall(r"^([a-z-]+):(?!=)", (root / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "bench", "setup"} <= set(listed)


def test_ci_runs_the_tests(root):
    assert (root / ".ci/run").stat().st_mode & stat.S_IXUSR
    assert "make test" in (root / ".ci/run").read_text()


def test_lock_pins_every_package(root):
    lock = (root / "requirements.lock").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^=\s]+", line) for line in lock), lock
    names = {line.split("==")[0].lower().replace("_", "-") for line in lock}
    for file in ("requirements.txt", "requirements-dev.txt"):
        for line in (root / file).read_text().splitlines():
            if line and not line.startswith("#"):
                assert line.split("==")[0].lower() in names
    assert "tensorflow-cpu==2.15.1" in lock


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("python", "no python3.11 found; install it .*apt-get install python3.11"),
        ("compiler", r"no C\+\+ compiler .* found.*apt-get install g\+\+"),
        ("version", "Python 3.11 is needed .* is 3.8; install python3.11"),
        ("venv", "cannot make virtual environments.*apt-get install python3.11-venv"),
    ],
)
def test_what_is_missing_is_one_sentence(clone, tmp_path, missing, message):
    tools = tmp_path / "tools"
    for name in ("bash", "make", "env", "rm", "cp", "grep", "touch"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        tools.mkdir(exist_ok=True)
        (tools / name).symlink_to(found.stdout.strip())
    if missing != "python":
        version = "3.8" if missing == "version" else "3.11"
        ensurepip = "exit 1" if missing == "venv" else "exit 0"
        check = f'[[ "$2" == *ensurepip* ]] && {ensurepip}; echo {version}'
        program(tools, "python3.11", check)
    if missing != "compiler":
        program(tools, "g++", "exit 0")
    done = make(clone, "setup", path=str(tools))
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    assert len(said) == 1 and re.search(message, said[0]), done.stderr


def test_set_up_once_and_again_only_when_the_lock_changes(clone, tmp_path):
    """A stand-in for Python counts how often an environment is made."""
    tools = tmp_path / "tools"
    program(
        tools,
        "python",
        'if [ "$1" = -m ] && [ "$2" = venv ]; then echo made >>calls; mkdir -p .venv/bin; '
        'printf "#!/bin/bash\\ncp \\"\\${@: -1}\\" got.txt" >.venv/bin/python; '
        "chmod +x .venv/bin/python; else echo 3.11; fi",
    )
    flags = (f"PYTHON={tools / 'python'}",)
    for expected in (1, 1):
        done = make(clone, "setup", *flags)
        assert done.returncode == 0, done.stderr
        assert (clone / "calls").read_text().count("made") == expected
    os.utime(clone / "requirements.lock", (2**31, 2**31))
    make(clone, "setup", *flags)
    assert (clone / "calls").read_text().count("made") == 2
    make(clone, "-B", "setup", *flags, "TENSORFLOW=tensorflow[and-cuda]==2.15.1")
    installed = (clone / "got.txt").read_text()
    assert "tensorflow[and-cuda]==2.15.1" in installed
    assert "tensorflow-cpu" not in installed
