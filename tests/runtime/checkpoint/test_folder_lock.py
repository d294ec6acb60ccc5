"""Exclusive access to a folder of checkpoints, and messages for other trainings."""

import errno
import fcntl
import os
import re
import socket
import threading
import time

import pytest
from distributed_embeddings.collectives import World

from runtime.checkpoint import Folder, lock
from runtime.checkpoint.resume import Request, find


def test_second_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lock, "_QUIET_S", 0)
    first, second = Folder(tmp_path / "model"), Folder(tmp_path / "model")
    first.acquire()
    holder = rf"{re.escape(socket.gethostname())}, pid {os.getpid()}, since 20\d\d-.*\+00:00"
    message = (
        rf"being written by another training that still runs: {holder}\. Waited 1 s for it\. End "
        r"it, .*; only if that machine is down for good, .*, remove .*model/\.lock$"
    )
    with pytest.raises(ValueError, match=message):
        second.acquire(wait_s=1)
    (note,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"note: .*model is being written by {holder}; waiting up to 1 s .*", note)
    first.release()
    second.acquire()
    second.release()


def test_removed_lock_of_a_dead_machine(tmp_path):
    """`dead` stands for the lock that a file server keeps; the next one takes a lock of its own."""
    dead, mine = Folder(tmp_path), Folder(tmp_path)
    dead.acquire()
    waits = threading.Thread(target=mine.acquire)
    waits.start()
    time.sleep(0.3)
    assert waits.is_alive()
    (tmp_path / ".lock").unlink()
    waits.join(30)
    assert not waits.is_alive()
    mine.publish(mine.stage(3))
    with pytest.raises(ValueError, match="another training that still runs"):
        Folder(tmp_path).acquire(wait_s=0)
    # That machine lives after all.
    message = f"another training has taken the folder: .*, pid {os.getpid()}, since .*; stop one"
    with pytest.raises(OSError, match=message):
        dead.stage(4)
    with pytest.raises(OSError, match=message):
        dead.publish(tmp_path / ".writing-00001-step-4.x")
    assert [saved.step for saved in mine.list()] == [3]
    dead.release()
    mine.release()


def test_lock_file_replaced_while_locking(tmp_path, monkeypatch):
    mine, other, flock = Folder(tmp_path), Folder(tmp_path), fcntl.flock

    def late(file, how):
        if lock_it.pop("once", False):
            (tmp_path / ".lock").unlink()
            other.acquire()
        flock(file, how)

    lock_it = {"once": True}
    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ValueError, match="another training that still runs"):
        mine.acquire(wait_s=0)
    other.stage(1)
    other.release()


def test_removed_lock_file(tmp_path):
    mine, other = Folder(tmp_path), Folder(tmp_path)
    mine.acquire()
    (tmp_path / ".lock").unlink()
    with pytest.raises(OSError, match=r"\.lock was removed during the training"):
        mine.stage(1)
    other.acquire(wait_s=0)
    (tmp_path / ".lock").write_text("0123456789abcdef")  # of an earlier version, by another machine
    with pytest.raises(OSError, match="taken the folder: an unknown process; stop one of them"):
        mine.stage(2)
    mine.release()
    other.release()


def test_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    mine = Folder(tmp_path)
    mine.acquire(wait_s=0)
    assert mine.stage(1).is_dir()
    mine.release()


def test_full_disk(tmp_path, monkeypatch):
    mine = Folder(tmp_path)

    def full(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        mine.acquire()
    assert mine.lock.token is None
    (tmp_path / ".lock").write_text("")
    assert mine.stage(1).is_dir()
    mine.release()


@pytest.mark.parametrize(
    ("flags", "ranks", "wait_s"),
    [({}, 1, 60), ({"resume": "auto"}, 1, 180), ({"resume": "auto"}, 2, 80)],
)
def test_wait_at_the_start(tmp_path, monkeypatch, flags, ranks, wait_s):
    """The other ranks must not give rank 0 up while it waits."""
    requests = []
    monkeypatch.setattr(Folder, "acquire", lambda self, wait_s: requests.append(wait_s))

    class Several(World):
        def gather_objects(self, value, name="objects"):
            return [None if name == "checkpoint.mark" else value] * ranks

    find(Request(save=str(tmp_path / "c"), **flags), Several(size=ranks), 100.0)
    assert requests == [wait_s]
