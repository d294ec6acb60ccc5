"""Outputs: complete or unchanged after errors, kills and changes by others; foreign files stay."""

import errno
import json
import os
import stat
import threading

import pytest

from runtime.files import outputs, staging
from runtime.files.outputs import DATA_SET, MARKER, check_folder, check_writable, output_file
from runtime.files.staging import Staging, output_folder

TOOL = "preproc.tool"


def content(folder) -> dict[str, bytes]:
    """Files below a folder, without markers."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != MARKER
    }


def write(path, data=b"1", kind=DATA_SET, name="sub/a", **options):
    with output_folder(path, TOOL, kind, **options) as folder:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


# ---- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "replaced"])
def test_file(tmp_path, old):
    path = tmp_path / "new/a.bin"
    if old:
        path.parent.mkdir()
        path.write_bytes(old)
    with output_file(path) as stream:
        stream.write(b"new")
        assert (path.read_bytes() if path.exists() else None) == old
    assert content(tmp_path) == {"new/a.bin": b"new"}
    with pytest.raises(KeyboardInterrupt), output_file(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert content(tmp_path) == {"new/a.bin": b"new"}


def test_modes_of_umask(tmp_path):
    umask = os.umask(0o027)
    try:
        with output_file(tmp_path / "file"):
            pass
        write(tmp_path / "folder")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_file_behind_link(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with output_file(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_pipe_and_device(tmp_path):
    """They are written to, and stay."""
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with output_file(tmp_path / "pipe") as stream:
        stream.write(b"new")
    reader.join(timeout=60)
    assert received == [b"new"] and (tmp_path / "pipe").is_fifo()
    with output_file("/dev/null") as stream:
        stream.write(b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_full_disk(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="a could not be written"), output_file(tmp_path / "a") as s:
        s.write(b"new")
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "b")
    assert content(tmp_path) == {"a": b"old"}
    with pytest.raises(OSError, match="/dev/full could not"), output_file("/dev/full") as stream:
        stream.write(b"new")


def test_check_writable(tmp_path, monkeypatch):
    check_writable(tmp_path / "new/a")
    assert content(tmp_path) == {} and (tmp_path / "new").is_dir()
    check_writable("/dev/null")
    (tmp_path / "file").write_text("")
    names = (("file/a/b", NotADirectoryError), ("x" * 250, OSError), ("new", IsADirectoryError))
    for name, kind in names:
        with pytest.raises(kind, match=f"'{tmp_path}/{name[:4]}"):
            check_writable(tmp_path / name)
    (tmp_path / "link").symlink_to("file")
    check_writable(tmp_path / "link")
    if os.getuid() == 0:  # whose links are trusted
        os.lchown(tmp_path / "link", 1, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 2)
    with pytest.raises(PermissionError, match=f"another user: '{tmp_path}/link'"):
        check_writable(tmp_path / "link")


# ---- Folders -------------------------------------------------------------------------------------


def test_folder(tmp_path):
    path = tmp_path / "new/data"
    write(path)
    assert content(tmp_path) == {"new/data/sub/a": b"1"}
    rule, solutions = (
        "data exists and is not an empty folder; ",
        "remove it or choose another output",
    )
    for overwrite, flag in ((None, ""), (False, "replace it with --overwrite, ")):
        with pytest.raises(ValueError, match=rule + flag + solutions):
            write(path, b"2", overwrite=overwrite)
    write(path, b"2", overwrite=True, name="b/c")
    assert content(tmp_path) == {"new/data/b/c": b"2"}
    with pytest.raises(RuntimeError), output_folder(path, TOOL, DATA_SET, overwrite=True):
        raise RuntimeError
    assert content(tmp_path) == {"new/data/b/c": b"2"}
    assert [p.name for p in path.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("file", ["notes.txt", "sub/notes.txt", "other/notes.txt"])
def test_foreign_file(tmp_path, file):
    """Also one that appears while the new folder is written."""
    path = tmp_path / "data"
    write(path)

    def add():
        (path / file).parent.mkdir(exist_ok=True)
        (path / file).write_bytes(b"mine")

    with (
        pytest.raises(ValueError, match=file),
        output_folder(path, TOOL, DATA_SET, overwrite=True) as folder,
    ):
        (folder / "new").write_bytes(b"2")
        add()
    assert content(tmp_path) == {"data/sub/a": b"1", f"data/{file}": b"mine"}
    with pytest.raises(ValueError, match=file):
        write(path, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_that_appears_meanwhile(tmp_path, overwrite):
    path = tmp_path / "data"
    with (
        pytest.raises(ValueError, match="data"),
        output_folder(path, TOOL, DATA_SET, overwrite=overwrite) as folder,
    ):
        (folder / "new").write_bytes(b"2")
        path.mkdir()
        (path / "mine").write_bytes(b"1")
    assert content(tmp_path) == {"data/mine": b"1"}


def test_file_that_appears_amid_the_exchange(tmp_path, monkeypatch):
    path = tmp_path / "data"
    write(path)
    original = outputs.exchange

    def exchange(first, second):
        monkeypatch.setattr(outputs, "exchange", original)
        (path / "mine").write_bytes(b"mine")
        original(first, second)

    monkeypatch.setattr(outputs, "exchange", exchange)
    with pytest.raises(ValueError, match="mine"):
        write(path, b"2", overwrite=True)
    assert content(tmp_path) == {"data/sub/a": b"1", "data/mine": b"mine"}


@pytest.mark.parametrize(
    "change",
    [
        lambda marker: None,
        lambda marker: marker.write_text("{"),
        lambda marker: marker.unlink(),
        lambda marker: (marker.rename(marker.with_name("m")), marker.symlink_to("m")),
        lambda marker: marker.write_text(
            json.dumps({**json.loads(marker.read_text()), "files": ["../precious", "sub"]})
        ),
    ],
    ids=["another kind", "damaged", "absent", "a link", "planted"],
)
def test_folder_of_others(tmp_path, change):
    (tmp_path / "precious").write_bytes(b"mine")
    write(tmp_path / "data", kind="SavedModel")
    before = content(tmp_path)
    change(tmp_path / "data" / MARKER)
    with pytest.raises(ValueError, match="data"):
        write(tmp_path / "data", b"2", overwrite=True)
    assert before.items() <= content(tmp_path).items()


def test_link_in_replaced_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a").write_bytes(b"1")
    with output_folder(tmp_path / "data", TOOL, DATA_SET) as folder:
        (folder / "link").symlink_to(tmp_path / "mine")
    write(tmp_path / "data", b"2", overwrite=True)
    assert content(tmp_path) == {"mine/a": b"1", "data/sub/a": b"2"}


def test_invalid_folders(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path, message in (
        (tmp_path / "link", "symbolic link"),
        ("/proc", "mount point"),
        (tmp_path / "here", "current folder"),
        (tmp_path / "file", "got a file"),
    ):
        with pytest.raises(ValueError, match=message):
            write(path)
    with pytest.raises(ValueError, match="which is read"):
        check_folder(tmp_path / "out", DATA_SET, read=[tmp_path / "out/raw"])


def test_exchange_without_support(tmp_path, monkeypatch):
    """Two renames take its place."""
    monkeypatch.setattr(outputs, "_RENAME_EXCHANGE", 1 << 20)  # EINVAL
    write(tmp_path / "data")
    write(tmp_path / "data", b"2", overwrite=True)
    assert content(tmp_path) == {"data/sub/a": b"2"}


KILLED = 99


@pytest.mark.parametrize("resumes", [False, True])
def test_kills(tmp_path, monkeypatch, resumes):
    """At calls that change a folder, at each one while the folder is published: the old or the new
    content, foreign files stay, and the next run publishes the new one."""

    def publish(path, text, kill_at=0):
        """Returns the numbers of calls until the folder is written, and until it is published."""
        calls = 0

        def counted(function):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls == kill_at:
                    os._exit(KILLED)
                return function(*arguments, **options)

            return call

        def write():
            for file in files:
                file.write_text(text)
            return {}

        with monkeypatch.context() as patch:
            for name in ("rename", "replace", "mkdir", "rmdir", "unlink", "fsync"):
                patch.setattr(os, name, counted(getattr(os, name)))
            patch.setattr(outputs, "exchange", counted(outputs.exchange))
            with Staging(path, TOOL, DATA_SET, overwrite=True, resumes=resumes) as work:
                files = [work.data / name for name in "abc"]
                work.run("write", text, write, files)
                written = calls
                work.publish()
        return written, calls

    publish(tmp_path / "0/data", "old")
    written, num_calls = publish(tmp_path / "0/data", "new")
    assert 5 < written < num_calls - 5
    for moment in range(1, num_calls + 1):
        path = tmp_path / str(moment) / "data"
        publish(path, "old")
        (path.parent / "mine").write_bytes(b"mine")
        child = os.fork()
        if child == 0:
            publish(path, "new", moment)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
        assert set(content(path).values()) in ({b"old"}, {b"new"}) and len(content(path)) == 3
        publish(path, "new")
        new = {f"data/{name}": b"new" for name in "abc"}
        assert content(path.parent) == {"mine": b"mine", **new}
        assert sorted(p.name for p in path.parent.iterdir()) == ["data", "mine"]


# ---- Stages --------------------------------------------------------------------------------------


def stage(name, files, runs):
    """A stage that writes its name to its files, and notes that it ran."""

    def work():
        runs.append(name)
        for file in files:
            file.write_text(name)
        return {"name": name}

    return work


def test_finished_stages(tmp_path):
    path, runs = tmp_path / "data", []
    for is_first in (True, False):
        with Staging(path, TOOL, DATA_SET) as work:
            file = work.data / "a"
            result, is_new = work.run("first", "k", stage("first", [file], runs), [file])
            assert (result, is_new) == ({"name": "first"}, is_first)
            if not is_first:
                work.publish()
    assert runs == ["first"] and content(tmp_path) == {"data/a": b"first"}
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_stage_of_a_file_that_another_stage_wrote(tmp_path):
    """A finished stage does not count when another one has written its file since."""
    path, runs = tmp_path / "data", []
    for name, key in (("count", "1"), ("read", "2"), ("count", "1"), ("count", "1")):
        with Staging(path, TOOL, DATA_SET) as work:
            file = work.data / "vocabulary"
            work.run(name, key, stage(name, [file], runs), [file])
            assert file.read_text() == name
    assert runs == ["count", "read", "count"]


def test_mark_is_removed_before_the_file_is_written(tmp_path):
    path, runs = tmp_path / "data", []

    def fail():
        raise KeyboardInterrupt

    for work, key in ((stage("a", [], runs), "1"), (fail, "2"), (stage("a", [], runs), "1")):
        with Staging(path, TOOL, DATA_SET) as folder:
            folder.run("other", "1", dict)
            if work is fail:
                with pytest.raises(KeyboardInterrupt):
                    folder.run("a", key, work)
            else:
                folder.run("a", key, work)
    assert runs == ["a", "a"]


def test_two_runs(tmp_path):
    with (
        Staging(tmp_path / "data", TOOL, DATA_SET),
        pytest.raises(ValueError, match="another run is writing"),
        Staging(tmp_path / "data", TOOL, DATA_SET),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("planted", ["folder", "link", "file", "marker"])
def test_staging_folder_of_others(tmp_path, planted):
    path = tmp_path / "data"
    hidden = staging.OwnedFolder(tmp_path, path, TOOL).path
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_bytes(b"1")
    if planted == "link":
        hidden.symlink_to(tmp_path / "mine")
    elif planted == "file":
        hidden.write_bytes(b"1")
    else:
        hidden.mkdir()
        (hidden / "notes").write_bytes(b"1")
        if planted == "marker":
            (hidden / MARKER).write_text('{"kind": "staging", "output": "/elsewhere"}')
    before = content(tmp_path)
    with pytest.raises(ValueError, match=r"\.data\."):
        write(path)
    assert content(tmp_path) == before


def test_temporary_folder_elsewhere(tmp_path):
    """It is emptied at the start, and removed at the end."""
    (tmp_path / "temp").mkdir()
    with Staging(tmp_path / "data", TOOL, DATA_SET) as work:
        folder = work.temp_folder(tmp_path / "temp")
        (folder / "rows").write_bytes(b"1")
        assert folder.parent == tmp_path / "temp"
        work.publish()
    assert list((tmp_path / "temp").iterdir()) == []


def test_temporary_folder_next_to_the_output(tmp_path):
    with Staging(tmp_path / "data", TOOL, DATA_SET) as work:
        (work.temp_folder(tmp_path) / "rows").write_bytes(b"1")
        work.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
