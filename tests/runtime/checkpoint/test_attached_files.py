"""Files that checkpoints have in addition to weights."""

import errno
import os
import shutil

import numpy as np
import pytest

from runtime.checkpoint import DamagedCheckpoint, Folder, describe
from runtime.checkpoint.__main__ import main
from runtime.checkpoint.files import copy_attached
from runtime.checkpoint.reader import verify
from runtime.checkpoint.saver import Saver
from tests.runtime.checkpoint.array_weights import ArrayWeight

NAMES = ["encoder/encoder.json", "encoder/vocabulary/city.parquet", "feature_spec.yaml"]


@pytest.fixture
def source(tmp_path):
    """An encoder with one vocabulary."""
    folder = tmp_path / "data/encoder"
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "encoder.json").write_text("{}")
    (folder / "vocabulary/city.parquet").write_bytes(b"Bern")
    return folder


def save(root, source, steps=(1,), between=lambda step: None, notes=None):
    """Saves a checkpoint per step as one training does, of which two are kept; the last one."""
    folder = Folder(root)
    folder.acquire()
    try:
        saver = Saver(folder, keep=2, attached={"feature_spec.yaml": b"a: 1\n", "encoder": source})
        for step in steps:
            saver.save(step, [ArrayWeight("dense/a", np.ones((2, 3), np.float32))], {}, {})
            saver.wait()
            between(step)
    finally:
        folder.release()
    outcomes = saver.outcomes()
    assert [outcome.fault for outcome in outcomes] == [None] * len(steps)
    if notes is not None:
        notes += [outcome.note for outcome in outcomes]
    return folder.newest().path


def inode(file):
    return os.stat(file).st_ino


def test_links(tmp_path, source):
    """The first checkpoint shares the blocks of the data set, and the next ones share them although
    the data set is gone and the first checkpoint was deleted."""
    vocabulary = source / "vocabulary/city.parquet"
    expected = inode(vocabulary)

    def remove(step):
        if step == 1:
            for file in (vocabulary, source / "encoder.json"):
                file.unlink()

    path = save(tmp_path / "m", source, steps=(1, 2, 3), between=remove)
    assert [saved.step for saved in Folder(tmp_path / "m").list()] == [2, 3]
    assert sorted(describe(path).files) == NAMES
    assert inode(path / NAMES[1]) == expected
    assert (path / NAMES[2]).read_bytes() == b"a: 1\n"
    assert {fault for _, fault in verify(path)} == {None}


def test_replaced_data_set(tmp_path, source):
    """A checkpoint whose predecessor was removed by hand takes the files of the data set again."""

    def replace(step):
        if step == 1:
            shutil.rmtree(tmp_path / "m/00001-step-1")
            (source / "vocabulary/city.parquet").unlink()
            (source / "vocabulary/city.parquet").write_bytes(b"Oslo")

    path = save(tmp_path / "m", source, steps=(1, 2), between=replace)
    assert (path / NAMES[1]).read_bytes() == b"Oslo"
    assert {fault for _, fault in verify(path)} == {None}


def test_copies(tmp_path, source, monkeypatch):
    """Data set and checkpoint on two file systems."""

    def refuse(*paths):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    path = save(tmp_path / "m", source, steps=(1, 2))
    assert inode(path / NAMES[1]) != inode(source / "vocabulary/city.parquet")
    assert (path / NAMES[1]).read_bytes() == b"Bern"


def test_missing_source(tmp_path, source):
    """The weights are saved in any case."""
    shutil.rmtree(source)
    notes = []
    path = save(tmp_path / "m", source, notes=notes)
    assert list(describe(path).files) == [NAMES[2]]
    assert notes == [f"{source} is gone: the checkpoint is without it"]


@pytest.mark.parametrize("name", NAMES)
def test_damage(tmp_path, source, name):
    path = save(tmp_path / "m", source)
    file = path / name
    content = file.read_bytes()
    file.unlink()
    assert [n for n, fault in verify(path) if fault] == [name]
    file.write_bytes(content[:-1] + b"x")
    assert [n for n, fault in verify(path) if fault] == [name]
    with pytest.raises(DamagedCheckpoint, match=f"{file} is missing or damaged: the checksum"):
        copy_attached(path, describe(path), tmp_path / "copy")


def test_export(tmp_path, source, capsys):
    """Whole exports have the files, those of some weights have not."""
    path = save(tmp_path / "m", source)
    assert main(["export", str(path), "--output", str(tmp_path / "all")]) == 0
    for name in NAMES:
        assert (tmp_path / "all" / name).read_bytes() == (path / name).read_bytes()
    assert main(["export", str(path), "--output", str(tmp_path / "some"), "--weights=dense/"]) == 0
    assert not (tmp_path / "some/encoder").exists()
    assert main(["inspect", str(path)]) == 0
    assert f"files of the data set: {NAMES[2]}, {NAMES[0]}" in capsys.readouterr().out
