"""Logs of single processes; `tests/ranks/test_rank_logs.py` has real ranks."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from runtime.cluster import launcher
from runtime.logs import rank_logs

ROOT = Path(__file__).resolve().parents[3]
RANK_3 = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "HOROVOD_SECRET_KEY": "word"}
STARTED = """
import ctypes, os, signal, subprocess, sys, time
from runtime.logs import rank_logs
rank_logs.start(sys.argv[1])
rank_logs.check()
"""


def program(tmp_path, lines, folder=None, **options):
    """A process with a log that continues with `lines`, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", STARTED + lines, str(folder or tmp_path / "logs")],
        cwd=ROOT,
        env={**os.environ, **RANK_3, "NCCL_DEBUG": "IN FO", "PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(tmp_path, lines, folder=None, **options):
    """(exit code, stdout, stderr, lines of the log)."""
    process = program(tmp_path, lines, folder, **options)
    out, err = process.communicate(timeout=120)
    log = tmp_path / "logs" / "rank-00003.log"
    printed = log.read_text().splitlines() if log.exists() else []
    return process.returncode, out, err, printed


def test_header_and_end(tmp_path):
    code, out, err, log = run(tmp_path, "print('output'); os.system('echo of a child >&2')")
    assert (code, out, err) == (0, "output\n", "of a child\n")
    date = r"=== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}: "
    assert re.fullmatch(date + r"rank 3 of 4 \(local rank 0\) on .+, pid \d+, \d+ cores", log[0])
    assert log[1].startswith(f"=== {shlex.quote(sys.executable)} -c ")
    assert f"=== in {ROOT}" in log
    (variables,) = (line for line in log if line.startswith("=== ") and "NCCL_DEBUG" in line)
    assert "NCCL_DEBUG='IN FO'" in variables
    assert "word" not in variables and "SECRET" not in variables
    assert re.fullmatch(date + "the end of rank 3", log[-1])
    assert sorted(log[-3:-1]) == ["of a child", "output"]


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("ctypes.string_at(0)", -signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
        ("raise ValueError('a defect')", 1, "ValueError: a defect"),
    ],
    ids=["killed", "crashed", "raised"],
)
def test_end_of_the_process(tmp_path, end, code, error):
    result, out, _, log = run(tmp_path, "print('first'); os.write(1, b'second')\n" + end)
    assert (result, out) == (code, "first\nsecond")
    text = "\n".join(log)
    assert "first" in text and "second" in text and error in text
    assert log[-1].endswith(": the end of rank 3") == (code == 1)


def test_second_run_and_second_process(tmp_path):
    first = program(tmp_path, "print('first', flush=True); time.sleep(600)")
    assert first.stdout.readline() == "first\n"
    assert run(tmp_path, "print('second')")[0] == 0
    first.kill()
    first.communicate()
    assert run(tmp_path, "print('third')")[0] == 0
    logs = tmp_path / "logs"
    assert sorted(os.listdir(logs)) == ["rank-00003-2.log", "rank-00003.log"]
    text = (logs / "rank-00003.log").read_text()
    assert text.index("\nfirst\n") < text.index("\nthird\n") < text.index("the end of")
    assert text.count("rank 3 of 4") == 2
    assert "\nsecond\n" in (logs / "rank-00003-2.log").read_text()


def test_signals_to_all_processes_of_a_rank(tmp_path):
    """Signals as launchers send them: to the group and to all children."""
    lines = "signal.signal(signal.SIGTERM, lambda *_: print('SIGTERM'))\n"
    lines += "print('ready', flush=True)\nwhile True: time.sleep(0.01)\n"
    process = program(tmp_path, lines, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    tees = psutil.Process(process.pid).children(recursive=True)
    deadline = time.monotonic() + 60
    while [tee.name() for tee in tees] != ["tee", "tee"]:  # a shell becomes the second one
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for tee in tees:
            tee.send_signal(number)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout.readline() == "SIGTERM\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "logs/rank-00003.log").read_text().endswith("\nready\nSIGTERM\n")


def test_output_without_reader(tmp_path):
    """A launcher that has ended: the log is complete."""
    lines = "sys.stdin.readline()\nfor i in range(9): print('line', i, flush=True)\n"
    process = program(tmp_path, lines, stdin=subprocess.PIPE)
    process.stdout.close()
    process.stdin.write("continue\n")
    process.stdin.close()
    assert process.wait(120) == 0
    log = (tmp_path / "logs" / "rank-00003.log").read_text()
    assert "line 0\n" in log and "line 8\n" in log


def test_full_disk(tmp_path):
    """Simulated by a limit on the size of files."""
    lines = "for i in range(3): print('word' * 1000, flush=True); time.sleep(0.05)\n"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
    done = subprocess.run(
        [sys.executable, "-c", limit + STARTED + lines, str(tmp_path / "logs")],
        cwd=ROOT,
        env={**os.environ, **RANK_3},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ("word" * 1000 + "\n") * 3
    assert "tee: " in done.stderr and "File too large" in done.stderr


def test_child_that_keeps_the_output_open(tmp_path):
    """A child like multiprocessing's tracker of shared memory, which outlives the process."""
    lines = (
        "child = subprocess.Popen(['sleep', '300']); print('word' * 9999); rank_logs.start(None)\n"
    )
    lines += "print('after', flush=True); child.kill()"
    code, out, err, log = run(tmp_path, lines)
    assert (code, err) == (0, "")
    assert out == "word" * 9999 + "\nafter\n"
    assert log[-2] == "word" * 9999


def test_no_open_descriptors_after_the_end(tmp_path):
    lines = "rank_logs.start(None)\ndef opened(): return len(os.listdir('/proc/self/fd'))\n"
    lines += "before = opened(); rank_logs.start(sys.argv[1]); print('some')\n"
    lines += "rank_logs.start(None); print(opened() - before, flush=True)\n"
    assert run(tmp_path, lines)[1] == "some\n0\n"


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    rank_logs.start(str(tmp_path / "file" / "logs"))
    with pytest.raises(
        ValueError, match=r"--rank_logs .*: the log of rank 0 on .* cannot be writt"
    ):
        rank_logs.check()
    assert rank_logs.path() is None
    rank_logs.start(None)
    rank_logs.check()


def test_rank_of_the_launcher(monkeypatch):
    for names in (("HOROVOD_SIZE", "HOROVOD_RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")):
        with monkeypatch.context() as patch:
            for name, value in zip(names, "53", strict=True):
                patch.setenv(name, value)
            assert launcher.rank() == 3
    assert launcher.rank() == 0
