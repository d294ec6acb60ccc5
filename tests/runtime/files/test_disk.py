"""Writes that are on the disk, errors that name the file, locks between processes."""

import errno
import os

import pytest

from runtime.files import disk
from runtime.files.disk import FileLock, allocate, make_durable_folder, write_errors_name


def test_durable_folder(tmp_path, monkeypatch):
    """After a power loss, a checkpoint that was reported as saved is in a folder that exists."""
    synced = []
    monkeypatch.setattr(disk, "sync", synced.append)
    (tmp_path / "there").mkdir()
    make_durable_folder(tmp_path / "there/a/b")
    assert (tmp_path / "there/a/b").is_dir()
    assert set(synced) == {tmp_path / "there", tmp_path / "there/a"}
    synced.clear()
    make_durable_folder(tmp_path / "there/a/b")
    assert synced == []


def test_write_errors(tmp_path):
    message = r"a\.bin could not be written: No space left\. Is the disk full"
    with pytest.raises(OSError, match=message), write_errors_name(tmp_path / "a.bin"):
        raise OSError(errno.ENOSPC, "No space left")
    with pytest.raises(PermissionError), write_errors_name(tmp_path / "a.bin"):
        raise PermissionError(errno.EACCES, "Permission denied", "b")
    with pytest.raises(KeyError), write_errors_name(tmp_path / "a.bin"):
        raise KeyError


def test_allocate(tmp_path, monkeypatch):
    """A file keeps its content; a full disk is an error that names it."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"12")
    allocate(path, 4)
    assert path.read_bytes() == b"12\0\0"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"a\.bin could not be written: No space left"):
        allocate(path, 8)


@pytest.mark.parametrize("name", ["lock", "."], ids=["file", "folder"])
def test_lock(tmp_path, name):
    first, second = FileLock(tmp_path / name), FileLock(tmp_path / name)
    with first:
        assert first.is_held and not second.acquire(blocking=False) and not second.is_held
        if name == "lock":  # it belongs to the file that has the name
            (tmp_path / name).unlink()
            assert second.acquire(blocking=False)
            second.release()
    assert second.acquire(blocking=False)
    second.release()
