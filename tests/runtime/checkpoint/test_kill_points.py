"""A save that ends at any of its calls to the file system: killed there, or refused there.

`tests/ranks/test_kills.py` kills real trainings at random moments; here every moment at which the
folder changes has its turn.
"""

import builtins
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from runtime import checkpoint
from runtime.checkpoint import Folder
from runtime.checkpoint.saver import Outcome, Saver
from tests.runtime.checkpoint.array_weights import ArrayWeight, check_whole, left_over

KILLED = 99

# Functions of `os` that change a folder or a file, or make it last.
CALLS = ("mkdir", "rename", "fsync", "unlink", "rmdir", "open", "write", "ftruncate", "link")

# Attached files; each save links the one of the folder that is the source of all of them.
SPEC = "feature_spec.yaml"


def weights(step: int) -> list[ArrayWeight]:
    """Two tables and their state, as they are after a step."""
    values = np.arange(60, dtype=np.float32).reshape(12, 5)
    names = ("dense/kernel", "sparse/a", "sparse/b", "sparse.state/a")
    return [ArrayWeight(name, values * step + number) for number, name in enumerate(names)]


def save(root: Path, step: int, keep: int = 2) -> Outcome:
    """Saves as a training does that has just started."""
    folder = Folder(root)
    source = root.parent / "data/encoder"
    if not source.exists():
        (source / "vocabulary").mkdir(parents=True)
        (source / "vocabulary/city.parquet").write_bytes(b"Bern")
    folder.acquire()
    try:
        saver = Saver(folder, keep=keep, attached={SPEC: b"features", "encoder": source})
        saver.save(step, weights(step), {"recipe": "test"}, {"step": step})
        saver.wait()
        (outcome,) = saver.outcomes()
        return outcome
    finally:
        folder.release()


class AtCall:
    """Does something in place of the n-th call (from 1) that changes the file system."""

    def __init__(self, monkeypatch, nth: int | None = None, action=None):
        self.count, self.what, self._nth, self._action = 0, [], nth, action
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(builtins, "open", self._wrapped("open", open, mode=1))

    def _wrapped(self, name, original, mode=None):
        def call(*args, **keywords):
            if mode is not None and not {"w", "x"} & {*(*args, "r")[mode]}:
                return original(*args, **keywords)
            if name == "open" and mode is None and not args[1] & os.O_CREAT:
                return original(*args, **keywords)
            where = args[1] if name == "link" else args[0]
            where = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else where
            self.count += 1
            self.what.append(f"{name} {where}")
            if self.count == self._nth:
                self._action()
            return original(*args, **keywords)

        return call


def calls_of_a_save(folder: Path, monkeypatch) -> list[str]:
    """Returns the calls to the file system of a third save, of which two are kept."""
    with monkeypatch.context() as patched:
        calls = AtCall(patched)
        assert save(folder, step=3).fault is None
    return calls.what


@pytest.fixture
def two_saved(tmp_path) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    for step in (1, 2):
        assert save(tmp_path / "two", step).fault is None
    return tmp_path / "two"


def check_saved(root: Path) -> list[int]:
    """Every checkpoint that has its name is whole and what was saved; the steps."""
    for number, step, path in Folder(root).list():
        index = checkpoint.describe(path)
        assert (number, index.state) == (step, {"step": step})
        assert sorted(index.files) == ["encoder/vocabulary/city.parquet", SPEC]
    return check_whole(root, weights)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.long)])
def test_kill_points(two_saved, tmp_path, monkeypatch, stride):
    """After a kill at any call two checkpoints are complete or three, and the next save works and
    cleans up."""
    number_of_calls = len(
        calls_of_a_save(shutil.copytree(two_saved, tmp_path / "all"), monkeypatch)
    )
    assert number_of_calls > 30
    result = set()
    for nth in range(1, number_of_calls + 1, stride):
        folder = shutil.copytree(two_saved, tmp_path / f"at {nth}")
        child = os.fork()
        if child == 0:
            AtCall(monkeypatch, nth, lambda: os._exit(KILLED))
            save(folder, step=3)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == KILLED, nth
        steps = check_saved(folder)
        result.add(tuple(steps))
        assert steps[:2] == [1, 2] or steps[-2:] == [2, 3]
        again = save(folder, step=steps[-1] + 1)
        assert again.fault is None, (nth, again)
        assert check_saved(folder) == [steps[-1], steps[-1] + 1]
        assert left_over(folder) == []
        shutil.rmtree(folder)
    assert result == {(1, 2), (1, 2, 3), (2, 3)} or stride > 1


@pytest.mark.parametrize(
    ("error", "stride"),
    [
        (errno.ENOSPC, 7),
        *(pytest.param(e, 1, marks=pytest.mark.long) for e in (errno.ENOSPC, errno.EIO)),
    ],
)
def test_failing_calls(two_saved, tmp_path, monkeypatch, error, stride):
    """A call fails: the old checkpoints stay, nothing is left over, the next save works, and the
    reported outcome is correct."""
    number_of_calls = len(
        calls_of_a_save(shutil.copytree(two_saved, tmp_path / "all"), monkeypatch)
    )

    def refuse():
        raise OSError(error, os.strerror(error))

    wrong = []
    for nth in range(1, number_of_calls + 1, stride):
        folder = shutil.copytree(two_saved, tmp_path / f"at {nth}")
        with monkeypatch.context() as patched:
            calls = AtCall(patched, nth, refuse)
            try:
                outcome = save(folder, step=3)
            except ValueError as refused:  # the folder could not be taken
                assert os.strerror(error) in str(refused)
                assert check_saved(folder) == [1, 2]
                continue
        where = calls.what[nth - 1]
        steps = check_saved(folder)
        if outcome.fault is None:
            if outcome.path is None or steps[-1] != 3:
                wrong.append(f"{where}: no fault and no checkpoint")
        else:
            assert os.strerror(error) in outcome.fault[1]
            if steps != [1, 2]:
                wrong.append(f"{where}: a fault, and the checkpoints of steps {steps}")
            if left_over(folder):
                wrong.append(f"{where}: a fault, and {left_over(folder)} is left")
        assert save(folder, step=4).fault is None
        if left_over(folder):
            wrong.append(f"{where}: after the next save {left_over(folder)} is left")
        shutil.rmtree(folder)
    assert wrong == []


def test_order_of_syncs(two_saved, monkeypatch):
    """Every file and folder is synced before the rename, the folder above after it, and the oldest
    is deleted last: power may fail at any moment."""
    calls = calls_of_a_save(two_saved, monkeypatch)
    start = f"rename {two_saved / '.writing-00003-step-3.'}"
    (renamed,) = [i for i, call in enumerate(calls) if call.startswith(start)]
    staging = calls[renamed].removeprefix("rename ")
    path = two_saved / "00003-step-3"
    places = [path, *path.rglob("*")]
    assert len(places) == 1 + 5 + 7
    for place in places:
        written = staging + str(place).removeprefix(str(path))
        synced = [i for i, call in enumerate(calls) if call == f"fsync {written}"]
        assert synced and synced[-1] < renamed, written
        changed = [
            i
            for i, call in enumerate(calls)
            if call.split(" ", 1)[0] in ("write", "open", "mkdir", "link")
            and call.endswith(" " + written)
        ]
        inside = [
            i
            for i, call in enumerate(calls)
            if call.startswith(("open ", "mkdir ", "link "))
            and str(Path(call.split(" ", 1)[1]).parent) == written
        ]
        assert max(changed + inside) < synced[-1], written
    (above,) = [i for i, call in enumerate(calls) if call == f"fsync {two_saved}"]
    deleted = [i for i, call in enumerate(calls) if "00001-step-1" in call]
    assert renamed < above < min(deleted)
