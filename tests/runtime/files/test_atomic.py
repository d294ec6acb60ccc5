"""Atomic output: complete or unchanged after errors and kills; locks between processes."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from runtime.files import atomic
from runtime.files.atomic import (
    FileLock,
    atomic_file,
    atomic_folder,
    check_writable,
    make_durable_folder,
    replace_folder,
    write_errors_name,
)


def content(folder) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "replaced"])
def test_file(tmp_path, old):
    path = tmp_path / "new/a.bin"
    if old:
        path.parent.mkdir()
        path.write_bytes(old)
    with atomic_file(path) as stream:
        stream.write(b"new")
        assert (path.read_bytes() if path.exists() else None) == old
    assert content(tmp_path) == {"new/a.bin": b"new"}
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert content(tmp_path) == {"new/a.bin": b"new"}
    (tmp_path / "link").symlink_to("new/a.bin")
    with atomic_file(tmp_path / "link") as stream:
        stream.write(b"newer")
    assert (tmp_path / "link").is_symlink() and path.read_bytes() == b"newer"


def test_mode_and_umask(tmp_path):
    umask = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "file"):
            pass
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_full_disk(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), atomic_file(tmp_path / "a") as stream:
        stream.write(b"new")
    with pytest.raises(OSError, match="No space left"), atomic_folder(tmp_path / "b") as folder:
        (folder / "c").write_bytes(b"new")
    assert content(tmp_path) == {"a": b"old"}


def test_check_writable(tmp_path):
    check_writable(tmp_path / "new/a")
    assert content(tmp_path) == {} and (tmp_path / "new").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        check_writable(tmp_path / "file/a/b")


def test_folder(tmp_path):
    path = tmp_path / "new/data"
    with atomic_folder(path) as folder:
        (folder / "sub").mkdir()
        (folder / "sub/a").write_bytes(b"1")
        assert not path.exists()
    assert content(tmp_path) == {"new/data/sub/a": b"1"}
    with pytest.raises(ValueError, match="exists and is not an empty folder"), atomic_folder(path):
        pass
    with atomic_folder(path, overwrite=True) as folder:
        (folder / "b").write_bytes(b"2")
    assert content(tmp_path) == {"new/data/b": b"2"}
    with pytest.raises(RuntimeError), atomic_folder(path, overwrite=True) as folder:
        raise RuntimeError
    assert content(tmp_path) == {"new/data/b": b"2"}
    assert [p.name for p in path.parent.iterdir()] == ["data"]
    with pytest.raises(OSError, match=r"data: the new folder could not .*previous one was"):
        replace_folder(path, tmp_path / "absent")
    assert content(tmp_path) == {"new/data/b": b"2"}


def test_invalid_folder_names(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symbolic link"), atomic_folder(tmp_path / "link"):
        pass
    with pytest.raises(ValueError, match="mount point"), atomic_folder("/proc"):
        pass
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match="current folder"), atomic_folder(tmp_path / "here"):
        pass


def test_killed_process(tmp_path, root):
    """Nothing under the name; the hidden neighbour stays."""
    program = f"""
import os, signal
from runtime.files.atomic import atomic_folder
with atomic_folder({str(tmp_path / "data")!r}) as folder:
    (folder / "a").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    (partial,) = tmp_path.iterdir()
    assert partial.name.startswith(".data.")


def test_durable_folder(tmp_path, monkeypatch):
    """After a power loss, a checkpoint that was reported as saved is in a folder that exists."""
    synced = []
    monkeypatch.setattr(atomic, "sync", synced.append)
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
