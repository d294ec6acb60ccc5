"""Logs of processes that end in every way; `tests/ranks/test_rank_logs.py` has real ranks."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
    """A process with a log that goes on with `lines`, its output in pipes."""
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
    """(exit code, stdout, stderr, lines of the log behind its header)."""
    process = program(tmp_path, lines, folder, **options)
    out, err = process.communicate(timeout=120)
    log = tmp_path / "logs" / "rank-00003.log"
    said = log.read_text().splitlines() if log.exists() else []
    return process.returncode, out, err, said


def test_header_and_end(tmp_path):
    code, out, err, log = run(tmp_path, "print('a word'); os.system('echo of a child >&2')")
    assert (code, out, err) == (0, "a word\n", "of a child\n")
    date = r"=== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}: "
    who = r"rank 3 of 4 \(local rank 0\) on .+, pid \d+, cores \d[\d,-]*"
    assert re.fullmatch(date + who, log[0])
    assert log[1].startswith(f"=== {shlex.quote(sys.executable)} -c ")
    assert f"=== in {ROOT}" in log
    (variables,) = (line for line in log if line.startswith("=== ") and "NCCL_DEBUG" in line)
    assert "NCCL_DEBUG='IN FO'" in variables
    assert "word" not in variables and "SECRET" not in variables
    assert re.fullmatch(date + "the end of rank 3", log[-1])
    assert sorted(log[-3:-1]) == ["a word", "of a child"]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("os._exit(5)", 5, ""),
        ("ctypes.string_at(0)", -signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
        ("raise ValueError('a defect')", 1, "ValueError: a defect"),
    ],
    ids=["killed", "left", "crashed", "raised"],
)
def test_all_is_there_however_it_ends(tmp_path, end, code, said):
    lines = "print('first'); os.write(1, b'second')\n"
    found, out, err, log = run(tmp_path, lines + end)
    assert (found, out) == (code, "first\nsecond")
    assert "first" in log and log[-1].endswith(": the end of rank 3")
    assert said in err
    end = f"first\nsecond{err}".splitlines()  # stdout stands before what came later on stderr
    assert log[-len(end) - 1 : -1] == end


def test_a_second_run_goes_on_with_the_file_and_a_living_writer_keeps_its_own(tmp_path):
    first = program(tmp_path, "print('first', flush=True); time.sleep(600)")
    assert first.stdout.readline() == "first\n"
    assert run(tmp_path, "print('second')")[0] == 0
    first.kill()
    first.communicate()
    assert run(tmp_path, "print('third')")[0] == 0
    logs = tmp_path / "logs"
    assert sorted(os.listdir(logs)) == ["rank-00003-2.log", "rank-00003.log"]
    text = (logs / "rank-00003.log").read_text()
    assert text.index("\nfirst\n") < text.index("the end of") < text.index("\nthird\n")
    assert text.count("rank 3 of 4") == 2
    assert "\nsecond\n" in (logs / "rank-00003-2.log").read_text()


def test_signals_to_the_group_do_not_end_the_writer(tmp_path):
    """Ctrl-C and a launcher's SIGTERM go to every process of the group."""
    lines = "signal.signal(signal.SIGTERM, lambda *_: print('SIGTERM'))\n"
    lines += "print('ready', flush=True)\nwhile True: time.sleep(0.01)\n"
    process = program(tmp_path, lines, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    (writer,) = writers_of(process)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(writer, number)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout.readline() == "SIGTERM\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    log = (tmp_path / "logs" / "rank-00003.log").read_text().splitlines()
    assert log[-3:-1] == ["ready", "SIGTERM"]
    assert log[-1].endswith(": the end of rank 3")


def writers_of(process):
    """Ids of the writers that `process` has the pipes of."""
    pipes = {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            theirs = {os.readlink(file) for file in (folder / "fd").iterdir()}
        except OSError:
            continue
        if b"rank_log_writer" in command and pipes & theirs:
            found.append(int(folder.name))
    return found


def test_a_killed_writer_takes_nobody_along(tmp_path):
    lines = (
        "print('ready')\nsys.stdin.readline()\nprint('on the way')\nos.write(2, b'on its way')\n"
    )
    lines += "os.mkdir(sys.argv[1] + '/written')\nsys.stdin.readline()\nprint('goes on')\n"
    process = program(tmp_path, lines, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    (writer,) = writers_of(process)
    os.kill(writer, signal.SIGSTOP)
    process.stdin.write("go on\n")
    process.stdin.flush()
    while not (tmp_path / "logs" / "written").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(writer, signal.SIGKILL)
    note = process.stderr.readline()
    note_pattern = r"on its waynote: the log \S+/rank-00003.log ends here: .+ has ended\n"
    assert re.fullmatch(note_pattern, note)
    assert process.communicate("go on\n") == ("on the way\ngoes on\n", "")
    assert process.returncode == 0


def test_nobody_reads_what_is_said_any_more(tmp_path):
    """A launcher that is gone: the log has it all."""
    lines = "sys.stdin.readline()\nfor i in range(9): print('line', i, flush=True)\n"
    process = program(tmp_path, lines, stdin=subprocess.PIPE)
    process.stdout.close()
    process.stdin.write("go on\n")
    process.stdin.close()
    assert process.wait(120) == 0
    log = (tmp_path / "logs" / "rank-00003.log").read_text()
    assert "line 0\n" in log and "line 8\n" in log


def test_a_reader_that_is_slow(tmp_path):
    """Through a pipe that does not wait, as some launchers make them: nothing is lost."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    lines = "for i in range(30000): print('line', i)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED + lines, str(tmp_path / "logs")], cwd=ROOT, stdout=write
    )
    os.close(write)
    time.sleep(0.5)
    with open(read) as said:
        assert sum(1 for _ in said) == 30000
    assert process.wait(120) == 0


def test_all_is_said_when_the_process_has_ended(tmp_path):
    """The next command may read it: so the process waits for its writer."""
    lines = "print('ready')\nsys.stdin.readline()\nprint('the last word')\n"
    process = program(tmp_path, lines, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    (writer,) = writers_of(process)
    os.kill(writer, signal.SIGSTOP)
    process.stdin.write("go on\n")
    process.stdin.flush()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    finally:
        os.kill(writer, signal.SIGCONT)
    assert process.communicate(timeout=120) == ("the last word\n", "")


def test_a_full_disk_is_said_once_and_ends_nothing(tmp_path):
    """A limit on the size of files stands for it."""
    lines = "for i in range(3): print('word' * 1000, flush=True); time.sleep(0.05)\n"
    limited = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
    done = subprocess.run(
        [sys.executable, "-c", limited + STARTED + lines, str(tmp_path / "logs")],
        cwd=ROOT,
        env={**os.environ, **RANK_3},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ("word" * 1000 + "\n") * 3
    assert done.stderr == (
        "note: the log of rank 3 cannot be written (File too large); its process goes on\n"
    )


def test_a_child_that_keeps_the_pipes_is_not_waited_for(tmp_path):
    """As multiprocessing's tracker of shared memory, which outlives the process."""
    lines = "child = subprocess.Popen(['sleep', '300']); print(child.pid, flush=True)\n"
    lines += "began = time.monotonic(); print('word' * 9999); rank_logs.stop()\n"
    lines += "print(time.monotonic() - began, flush=True); child.kill()"
    code, out, err, log = run(tmp_path, lines)
    assert (code, err) == (0, "")
    _, words, seconds = out.splitlines()
    assert 0.9 < float(seconds) < 100
    assert log[-2] == words == "word" * 9999


def test_nothing_stays_open_after_the_end(tmp_path):
    lines = "rank_logs.stop()\ndef opened(): return len(os.listdir('/proc/self/fd'))\n"
    lines += "before = opened(); rank_logs.start(sys.argv[1]); print('some')\n"
    lines += "rank_logs.stop(); print(opened() - before, flush=True)\n"
    lines += "sys.executable = '/no-python'; rank_logs.start(sys.argv[1])\n"
    lines += "print(opened() - before, flush=True); rank_logs.check()"
    _, out, err, _ = run(tmp_path, lines)
    assert out == "some\n0\n0\n"
    assert "cannot be written (No such file or directory)" in err


def test_only_what_is_not_in_the_file_is_missing(tmp_path, monkeypatch):
    """A write that the disk had room for only in part."""
    from runtime.logs import rank_log_writer

    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write, room = os.write, [3, 0]

    def limited(descriptor, data):
        if descriptor != log or not room:
            return write(descriptor, data)
        if size := room.pop(0):
            return write(descriptor, data[:size])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", limited)
    monkeypatch.setattr(rank_log_writer, "forward", lambda *_: True)
    writer = rank_log_writer.Log(log, "rank 3")
    writer.write(b"0123456789")
    writer.write(b"after")
    os.close(log)
    assert (tmp_path / "log").read_text() == "012\n=== 7 bytes are missing here\nafter"


def test_where_something_is_missing(tmp_path, monkeypatch):
    """The disk has room again."""
    from runtime.logs import rank_log_writer

    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    read, write = os.pipe()
    monkeypatch.setattr(rank_log_writer, "forward", lambda _, data: os.write(write, data))
    writer = rank_log_writer.Log(log, "rank 3")
    full = os.open("/dev/full", os.O_WRONLY)
    writer.write(b"before\n")
    writer._descriptor = full
    writer.write(b"12345")
    writer.write(b"678\n")
    writer._descriptor = log
    writer.write(b"after")
    writer.end()
    said = b"note: the log of rank 3 cannot be written (No space left on device); "
    assert os.read(read, 1000) == said + b"its process goes on\n"
    before, gap, after, end = (tmp_path / "log").read_text().replace("\n\n", "\n").splitlines()
    assert (before, gap, after) == ("before", "=== 9 bytes are missing here", "after")
    assert end.endswith(": the end of rank 3")
    for descriptor in (log, read, write, full):
        os.close(descriptor)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    rank_logs.start(str(tmp_path / "file" / "logs"))
    with pytest.raises(
        ValueError, match=r"--rank_logs .*: the log of rank 0 on .* cannot be writt"
    ):
        rank_logs.check()
    assert rank_logs.path() is None
    rank_logs.start(None)
    rank_logs.check()


def test_which_rank_it_is(monkeypatch):
    for names in (("HOROVOD_SIZE", "HOROVOD_RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")):
        with monkeypatch.context() as patch:
            for name, value in zip(names, "53", strict=True):
                patch.setenv(name, value)
            assert rank_logs._who()[:2] == (3, 5)
    assert rank_logs._who() == (0, 1, 0)


def test_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 0, 1, 2, 8, 9})
    assert rank_logs._cores() == "0-2,5,8-9"


def test_stopped_before_the_process_becomes_another_program(tmp_path):
    """As an elastic training does."""
    lines = "print('old'); rank_logs.stop(); assert rank_logs.path() is None\n"
    lines += "os.execv('/bin/echo', ['echo', 'new'])"
    code, out, _, log = run(tmp_path, lines)
    assert (code, out) == (0, "old\nnew\n")
    assert log[-2] == "old" and log[-1].endswith("the end of rank 3")
