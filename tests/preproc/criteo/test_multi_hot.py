"""`python -m preproc.criteo.multi_hot` against NumPy, in all formats, interrupted."""

import contextlib
import filecmp
import json
import re

import numpy as np
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from preproc.criteo import prepare as criteo
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.multi_hot import __main__ as multi_hot
from preproc.criteo.multi_hot import id_tables, prepare
from preproc.criteo.options import CriteoOptions
from preproc.encoding.encoder import Encoder
from preproc.encoding.extension import DISTRIBUTIONS
from tests.preproc.contents import contents
from tests.preproc.criteo import criteo_reference as reference

CARDINALITIES, HOTNESS = [10, 2000, 50], [2, 5, 1]
SPLITS = {"train": 3000, "validation": 501, "test": 500}


@pytest.fixture(scope="module")
def one_hot(tmp_path_factory):
    """A prepared data set of three features with one id each."""
    folder = tmp_path_factory.mktemp("one_hot") / "data"
    write_dataset(folder, synthetic_spec(CARDINALITIES, num_numerical=2), SPLITS)
    return folder


def run(source, output, *flags):
    """Runs the command in this process; returns its exit status."""
    flags = ("--hotness=2,5,1", *flags) if not any("hotness" in flag for flag in flags) else flags
    return multi_hot.main([f"--input={source}", f"--output={output}", "--processes=1", *flags])


def ids_of(folder, split, feature):
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    name = f"cat_{feature}"
    values = np.fromfile(folder / split / f"{name}.bin", spec.dtype(name))
    return values.reshape(-1, spec.hotness(name))


def reference_tables(distribution):
    """Yields the tables of MLPerf's reference."""
    random = np.random.RandomState(0)
    for rows, hotness in zip(CARDINALITIES, HOTNESS, strict=True):
        if distribution == "uniform":
            yield random.randint(0, rows, size=(rows, hotness - 1))
        else:
            drawn = random.pareto(a=0.25, size=(rows, hotness - 1))
            inside = drawn < 2**31
            yield np.where(inside, np.where(inside, drawn, 0).astype(np.int64), -(2**31)) % rows


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_tables(tmp_path, distribution):
    state = None
    for feature, expected in enumerate(reference_tables(distribution)):
        path = tmp_path / str(feature)
        shape = (CARDINALITIES[feature], HOTNESS[feature] - 1)
        state = id_tables.draw_table(path, *shape, distribution, state, drawn_ids=7)
        state = json.loads(json.dumps(state))  # as it is kept between runs
        assert np.array_equal(np.fromfile(path, np.int32).reshape(shape), expected)


@pytest.mark.parametrize(("distribution", "is_large"), [("uniform", True), ("pareto", False)])
def test_extended_ids(one_hot, tmp_path, monkeypatch, distribution, is_large):
    """Also of a table larger than the memory, which is read in order."""
    if is_large:
        monkeypatch.setattr(id_tables.os, "sysconf", lambda name: 1)
    assert run(one_hot, tmp_path / "m", f"--distribution={distribution}") == 0
    for feature, table in enumerate(reference_tables(distribution)):
        for split, rows in SPLITS.items():
            ids = ids_of(one_hot, split, feature)[:, 0]
            expected = np.concatenate([ids[:, None], table[ids]], axis=1)
            assert expected.shape == (rows, HOTNESS[feature])
            assert np.array_equal(ids_of(tmp_path / "m", split, feature), expected)
    for split in SPLITS:
        for name in ("label.bin", "numerical.bin"):
            assert filecmp.cmp(one_hot / split / name, tmp_path / "m" / split / name, False)
    assert not list(tmp_path.glob(".m.*"))


@pytest.mark.parametrize(
    "flags", [("--hotness=3", "--distribution=pareto"), ("--hotness=2", "--cardinalities=40")]
)
def test_encoder(logs, tmp_path, flags):
    """The encoder makes of raw rows the ids and what extends them, also modulo a cardinality."""
    assert run(logs / "data", tmp_path / "m", *flags) == 0
    spec = FeatureSpec.from_yaml(tmp_path / "m/feature_spec.yaml")
    encoder = Encoder.load(tmp_path / "m/encoder")
    assert spec.metadata["encoder"] == encoder.digest
    for name in spec.channel("categorical"):
        assert encoder[name].num_ids == spec.cardinality(name)
        assert encoder[name].hotness == spec.hotness(name)
    assert encoder["cat_0"].list_size == 1
    encoded = reference.encode_raw(tmp_path / "m", [logs / "day_0", logs / "day_1"])
    renamed = {f"bin_{i}.bin": f"cat_{26 + i}.bin" for i in range(13)}
    encoded = {renamed.get(name, name): content for name, content in encoded.items()}
    assert encoded == reference.in_log_order(tmp_path / "m")
    value = encoder["cat_0"].values[0].as_py()
    if "--cardinalities=40" not in flags:
        assert encoder.decode("cat_0", [1]).to_pylist() == [value]
    elif len(encoder["cat_0"].values) >= 40:
        with pytest.raises(ValueError, match="cardinality: expected one id per value"):
            encoder.decode("cat_0", [1])


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Two days, and their data set."""
    folder = tmp_path_factory.mktemp("logs")
    for day in range(2):
        generate_day(folder / f"day_{day}", 300, [1, day])
    settings = {"output_ordering": "input", "frequency_threshold": 2, "bin_numericals": True}
    criteo.prepare(CriteoOptions(input=folder, output=folder / "data", **settings))
    return folder


def test_multi_hot_files_of_the_reference(one_hot, tmp_path):
    """Days with the ids of a data set, which are not extended again."""
    assert run(one_hot, tmp_path / "m") == 0
    days = tmp_path / "days"
    days.mkdir()
    splits = [["train"], ["validation", "test"]]
    for day, names in enumerate(splits):
        ids = [np.concatenate([ids_of(tmp_path / "m", s, i) for s in names]) for i in range(3)]
        path = days / f"day_{day}_sparse_multi_hot.npz"
        np.savez(path, **{str(i): each.astype(np.int32) for i, each in enumerate(ids)})
        for name, dtype, width, stored in (
            ("labels", "?", 1, np.int32),
            ("dense", np.float16, 2, np.float32),
        ):
            file = "label.bin" if name == "labels" else "numerical.bin"
            values = [np.fromfile(tmp_path / "m" / s / file, dtype) for s in names]
            values = np.concatenate(values).reshape(-1, width).astype(stored)
            np.save(days / f"day_{day}_{name}.npy", values)
    flags = ("--cardinalities=10,2000,50", "--hotness=2,5,1")
    assert run(days, tmp_path / "again", *flags) == 0
    for split in SPLITS:
        for name in ("label", "cat_0", "cat_1", "cat_2"):
            files = (tmp_path / folder / split / f"{name}.bin" for folder in ("m", "again"))
            assert filecmp.cmp(*files, False)


def test_files_of_the_reference(tmp_path):
    """`day_N_sparse.npy` with ids beyond the tables, as NumPy writes it."""
    rng, source = np.random.default_rng(0), tmp_path / "reference"
    source.mkdir()
    for day in range(3):
        rows = 400 + day
        ids = rng.integers(0, 10_000, [rows, 3], np.int32)
        np.save(source / f"day_{day}_sparse.npy", ids)
        np.save(source / f"day_{day}_dense.npy", rng.random([rows, 2], np.float32))
        np.save(source / f"day_{day}_labels.npy", rng.integers(0, 2, [rows, 1], np.int32))
    assert run(source, tmp_path / "m", "--num_embeddings_per_feature=10,2000,50") == 0
    ids = np.concatenate([np.load(source / f"day_{day}_sparse.npy") for day in range(2)])
    assert np.array_equal(ids_of(tmp_path / "m", "train", 1)[:, 0], ids[:, 1] % 2000)
    assert len(ids_of(tmp_path / "m", "validation", 0)) == 201


@contextlib.contextmanager
def failing_at(number, monkeypatch):
    """Writing part `number` fails."""
    write, written = prepare.PartWriter.write, []

    def failing(self, spec, part):
        written.append(part)
        if len(written) == number:
            raise OSError("the disk is full")
        write(self, spec, part)

    with monkeypatch.context() as patch:
        patch.setattr(prepare.PartWriter, "write", failing)
        yield


@pytest.fixture(scope="module")
def whole(one_hot, tmp_path_factory):
    """The content of a run by two processes that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "m"
    assert run(one_hot, folder, "--processes=2") == 0
    return contents(folder)


def test_other_flags_between_interrupted_runs(one_hot, whole, tmp_path, monkeypatch):
    with failing_at(12, monkeypatch):
        assert run(one_hot, tmp_path / "m") == 2
    with failing_at(3, monkeypatch):
        assert run(one_hot, tmp_path / "m", "--hotness=1") == 2
    assert run(one_hot, tmp_path / "m") == 0
    assert contents(tmp_path / "m") == whole


def test_interrupted_run(one_hot, whole, tmp_path, monkeypatch, capsys):
    with failing_at(4, monkeypatch):
        assert run(one_hot, tmp_path / "m") == 2
    assert not (tmp_path / "m").exists()
    drawn = []
    monkeypatch.setattr(prepare, "draw_table", lambda *arguments: drawn.append(arguments))
    capsys.readouterr()
    assert run(one_hot, tmp_path / "m") == 0
    assert "3 of 15 parts are finished" in capsys.readouterr().out
    assert not drawn
    assert contents(tmp_path / "m") == whole


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hotness=2,5"], "--hotness has 2 values"),
        (["--hotness=2,0,1"], "--hotness: expected at least 1, got 0"),
        (["--cardinalities=3000000000", "--hotness=1"], "2147483648"),
        ([], "--hotness"),
    ],
)
def test_invalid_flags(one_hot, tmp_path, capsys, flags, message):
    assert multi_hot.main([f"--input={one_hot}", f"--output={tmp_path / 'm'}", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob(".m.*"))


def test_invalid_sources(one_hot, tmp_path, capsys):
    assert run(tmp_path, tmp_path / "m") == 2
    assert "found neither" in capsys.readouterr().err
    assert run(one_hot, tmp_path / "multi_hot") == 0
    assert run(tmp_path / "multi_hot", tmp_path / "m") == 2
    assert "'cat_0' has 2 ids per sample" in capsys.readouterr().err
    np.save(tmp_path / "day_0_sparse.npy", np.zeros([3, 2], np.int32))
    np.save(tmp_path / "day_1_sparse.npy", np.zeros([3, 2], np.int32))
    assert run(tmp_path, tmp_path / "m") == 2
    assert "day_0_dense.npy" in capsys.readouterr().err
    for day in range(2):
        np.save(tmp_path / f"day_{day}_dense.npy", np.zeros([3, 2], np.float32))
        np.save(tmp_path / f"day_{day}_labels.npy", np.zeros([3 + day, 1], np.int32))
    assert run(tmp_path, tmp_path / "m") == 2
    assert "day_1_sparse.npy: samples, features or hotness differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("sparse", 3.9, "day_1_sparse.npy: feature 'cat_1': row 2 .*3.9.* int64"),
        ("labels", 0.7, "day_1_labels.npy: feature 'label': row 2 .*0.7"),
        ("labels", 2, "day_1_labels.npy: feature 'label': row 2 .*: 2.0,"),
        ("dense", np.nan, "day_1_dense.npy: feature 'num_2': row 2 .*nan"),
    ],
)
def test_values_that_would_change(tmp_path, capsys, file, value, message):
    """They are refused, not rounded or cut off."""
    for day in range(2):
        for name, width in (("sparse", 2), ("dense", 3), ("labels", 1)):
            array = np.zeros([4, width], np.float64)
            if name == file and day == 1:
                array[2, -1] = value
            np.save(tmp_path / f"day_{day}_{name}.npy", array)
    assert run(tmp_path, tmp_path / "m", "--hotness=2", "--cardinalities=9") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "m").exists()
