"""Forked programs behave as those that `python` starts."""

import json
import subprocess
import time

import pytest

from tests.forked_python import install_shim

pytestmark = pytest.mark.long

SHOW = """
import atexit, json, os, sys
atexit.register(print, "at exit")
print(json.dumps([sys.argv, __name__, os.getcwd(), os.environ.get("A"), sys.stdin.read()]))
print("to stderr", file=sys.stderr)
sys.exit({status!r})
"""


@pytest.fixture(scope="module")
def shim(forked_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim") / "bin"
    install_shim(folder, forked_python)
    return folder / "python"


@pytest.mark.parametrize("how", ["script", "module", "code"])
@pytest.mark.parametrize(("status", "code"), [(None, 0), (3, 3), ("a message", 1)])
def test_program(shim, tmp_path, how, status, code):
    text = SHOW.format(status=status)
    (tmp_path / "show.py").write_text(text)
    program = {"script": ["show.py"], "module": ["-m", "show"], "code": ["-c", text]}[how]
    done = subprocess.run(
        [shim, *program, "--a", "b c"],
        cwd=tmp_path,
        env={"A": "é"},
        input="words",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    shown, end = done.stdout.splitlines()
    argv, name, folder, variable, words = json.loads(shown)
    assert (argv[1:], name, folder) == (["--a", "b c"], "__main__", str(tmp_path))
    assert (variable, words, end) == ("é", "words", "at exit")
    assert done.stderr.splitlines()[0] == "to stderr"
    assert ("a message" in done.stderr) is (status == "a message")


def test_exception(shim, tmp_path):
    done = subprocess.run([shim, "-"], input="1 / 0", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_end_of_the_shim(shim, tmp_path):
    code = "import pathlib, time\nwhile True: pathlib.Path('alive').touch(); time.sleep(0.05)"
    process = subprocess.Popen([shim, "-c", code], cwd=tmp_path)
    alive = tmp_path / "alive"
    while not alive.exists():
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(0.5)
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


def test_timeout(run_script):
    with pytest.raises(subprocess.TimeoutExpired):
        run_script("-m", "timeit", "-n", "1", "-r", "1", "__import__('time').sleep(60)", timeout=1)
