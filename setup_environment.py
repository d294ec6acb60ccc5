"""Makes .venv, the environment of the toolkit, from the packages of a lock.

    python3 setup_environment.py

`make` runs it as the first step of every target. It needs the standard library alone, and any
Python from 3.7 on: the environment gets the newest Python that the lock is made for.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = Path(".venv")
BASE_LOCK = "requirements/base.lock"
RUN_LOCK = "requirements/run.lock"
TENSORFLOW = "tensorflow-cpu=="
# Prints the version of a Python and if it can make environments.
DESCRIBE = """
import json, sys
try:
    import ensurepip, venv
except ImportError:
    venv = None
print(json.dumps({"version": list(sys.version_info[:2]), "venv": bool(venv)}))
"""


class SetupError(Exception):
    """The environment cannot be made; the message names what to install or to change."""


def describe(python):
    """Returns the version of a Python and if it can make environments; None if it does not run."""
    try:
        printed = subprocess.check_output(
            [python, "-c", DESCRIBE], stderr=subprocess.DEVNULL, text=True
        )
        facts = json.loads(printed)
        return tuple(facts["version"]), facts["venv"]
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def supported_versions(lock):
    """Returns the Python versions of a lock's first line (`# Python: 3.10 3.11`), newest first."""
    with open(lock) as file:
        words = file.readline().partition("# Python:")[2].split()
    return sorted((tuple(map(int, word.split("."))) for word in words), reverse=True)


def dotted(version):
    """Returns a version's text: (3, 13) is 3.13."""
    return ".".join(map(str, version))


def find_python(lock, named=None):
    """Returns the path and the version of the newest Python on the PATH that the lock is made for.

    Args:
        named: the only Python to consider, as a name or a path.

    Raises:
        SetupError: no such Python; the message lists the candidates.
    """
    versions = supported_versions(lock)
    names = [named] if named else ["python" + dotted(version) for version in versions]
    names += [] if named else ["python3", "python", sys.executable]
    usable, incomplete, seen = [], [], []
    for name in names:
        path = shutil.which(name)
        described = describe(path) if path else None
        seen.append(f"{name} ({dotted(described[0]) if described else 'not found'})")
        if described and described[0] in versions:
            (usable if described[1] else incomplete).append((described[0], path))
    if usable:
        # max() takes the first of equal versions, which is the one found under its full name
        version, path = max(usable, key=lambda candidate: candidate[0])
        # not the link of an activated .venv, which is replaced
        return os.path.realpath(path), version
    if incomplete:
        version, path = max(incomplete)
        raise SetupError(
            f"{path} cannot make virtual environments (no module venv or ensurepip); install them "
            f"(Debian and Ubuntu: apt-get install python{dotted(version)}-venv)"
        )
    raise SetupError(
        f"no Python that fits {lock}; expected {' or '.join(map(dotted, versions))}, looked for "
        f"{', '.join(seen)}; install one (Debian and Ubuntu: apt-get install python3 python3-venv) "
        "or name it: PYTHON=/path/to/python (make), --python /path/to/python"
    )


def lines_of(lock):
    """Returns the requirements of a lock; `-e` precedes a folder of this repository."""
    with open(lock) as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def install(lock, tensorflow=None):
    """Installs the packages of a lock, with another TensorFlow if one is given.

    Without dependencies, which the lock lists completely: tf-keras depends on the package
    `tensorflow`, in place of which the lock has `tensorflow-cpu`.
    """
    requirements = lines_of(lock)
    folders = [line for line in requirements if line.startswith("-e ")]
    packages = [line for line in requirements if line not in folders]
    if tensorflow:
        packages = [line for line in packages if not line.startswith(TENSORFLOW)]
    copy = ENVIRONMENT / "requirements.txt"
    copy.write_text("\n".join(packages) + "\n")
    print(f"setup: installing {lock} (a minute or two, once)", flush=True)
    # Of a first training's packages, those that it imports are compiled when it imports them.
    compiled = ["--no-compile"] if lock == RUN_LOCK else []
    _pip("--no-deps", *compiled, "--requirement", str(copy), total=len(packages))
    if tensorflow:
        print(f"setup: installing {tensorflow}", flush=True)
        _pip(tensorflow, "--constraint", str(copy))
    for line in folders:
        # By the setuptools of the lock.
        _pip("--no-deps", "--no-index", "--no-build-isolation", *line.split())


def _pip(*arguments, total=None):
    """Runs `pip install` and prints a line per 20 packages and per large file.

    Raises:
        SetupError: pip failed; its messages are on stderr.
    """
    command = [str(ENVIRONMENT / "bin/python"), "-m", "pip", "install", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        for line in progress_lines(process.stdout, total):
            print(line, flush=True)
    if process.returncode:
        raise SetupError(
            f"pip could not install {arguments[-1]} (its message is above); check the network or "
            "the package index, and run the set-up again"
        )


def progress_lines(output, total=None):
    """Yields the lines to print for those that pip prints."""
    count = 0
    for line in output:
        words = line.split()
        if line.startswith("Collecting "):
            count += 1
            if count % 20 == 0:
                yield f"setup: {count}{f' of {total}' if total else ''} packages"
        elif words[:1] == ["Downloading"] and words[-1] == "MB)" and float(words[-2][1:]) >= 10:
            yield "setup: downloading " + " ".join(words[1:])


def make_environment(lock, named=None, tensorflow=None, add=False):
    """Makes .venv; one that is there is replaced, so that it has exactly the packages of the lock.

    A link to the environment of another clone is used as it is.

    Args:
        named: the Python to take; None for the newest that fits.
        tensorflow: requirement in place of the lock's TensorFlow.
        add: install into the environment that is there.

    Raises:
        SetupError: no Python fits, or packages cannot be installed.
    """
    if ENVIRONMENT.is_symlink():
        print(f"setup: .venv is a link to {os.readlink(ENVIRONMENT)}, used unchanged")
        return
    if not add:
        python, version = find_python(lock, named)
        print(f"setup: Python {dotted(version)} ({python})", flush=True)
        if ENVIRONMENT.exists():
            shutil.rmtree(ENVIRONMENT)
        subprocess.check_call([python, "-m", "venv", str(ENVIRONMENT)])
    install(lock, tensorflow)


def main():
    """Runs the set-up in the folder of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", help="Python of the environment (default: the newest that fits)"
    )
    parser.add_argument("--lock", default=BASE_LOCK, help="default: %(default)s")
    parser.add_argument(
        "--tensorflow", help="in place of the lock's, e.g. tensorflow[and-cuda]==2.21.0"
    )
    parser.add_argument(
        "--add", action="store_true", help="install into the environment that is there"
    )
    args = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent)
    try:
        make_environment(args.lock, args.python, args.tensorflow, args.add)
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
