"""`python -m dataloading.dataloader_benchmark`: counts, and errors."""

import itertools
import re

import pytest
import tensorflow as tf

from dataloading import dataloader_benchmark as tool
from dataloading.dataloader_benchmark import time_pass
from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.formats.split_tfrecords.dataset import SplitTFRecordsDataset
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from tests.dataloading.formats.test_split_tfrecords import original, rows_of


@pytest.fixture(scope="module")
def binaries(tmp_path_factory):
    """20 rows of a numerical and 1 + 3 ids."""
    folder = tmp_path_factory.mktemp("rows") / "rows"
    return write_dataset(folder, synthetic_spec([5, 9], [1, 3], num_numerical=1), {"train": 20})


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """9 rows; row i has 1 + i % 4 ids."""
    folder = tmp_path_factory.mktemp("records")
    spec = original(folder, rows_of(9))
    spec.to_yaml(folder / "feature_spec.yaml")
    return spec


def test_counts_of_samples_and_bytes(binaries, records, monkeypatch):
    # A row: 1 float32 numerical, 4 int32 ids, label and weight of 4 bytes.
    monkeypatch.setattr(tool.time, "perf_counter", itertools.count(0, 2).__next__)
    loader = RawBinaryDataset(binaries, "train", 8)
    assert time_pass(loader, 0, 0, 100) == (20, 80, 20 * 7 * 4, 2)
    assert time_pass(loader, 0, 1, 100) == (12, 48, 12 * 7 * 4, 2)
    assert time_pass(loader, 0, 1, 1) == (8, 32, 8 * 7 * 4, 2)
    # Rows 4 to 8 have 5 ids of one feature, 0 + 1 + 2 + 3 + 0 of the other with 6 row splits in
    # batches of 4 and 1; with them 2 numerical features, label and weight.
    timed = time_pass(SplitTFRecordsDataset(records, "train", 4), 0, 1, 2)
    assert timed == (5, 11, (5 * 4 + 11 + 5 + 2) * 4, 2)


@pytest.mark.parametrize("kind", ["tf_raw", "split_tfrecords", "synthetic"])
def test_every_type(binaries, records, capsys, kind):
    folder = (records if kind == "split_tfrecords" else binaries).base_directory
    flags = ["--dataset_path", str(folder), "--dataset_type", kind, "--batch_size", "2"]
    flags += ["--warmup_steps", "1", "--max_batches", "2", "--repeats", "3"]
    assert tool.main(flags) == 0
    report = capsys.readouterr().out
    order = "generated" if kind == "synthetic" else "shuffled"
    assert re.match(rf"{kind}, 4 samples of \d+ ids, batch 2, {order}, 3 passes\n", report)
    for what in ("samples", "ids", "bytes"):
        assert re.search(
            rf"million {what} per second: median [\d.]+, lowest [\d.]+, highest", report
        )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--batch_size", "0"), "--batch_size is 0; expected 1 or more"),
        (("--max_batches", "0"), "--max_batches is 0; expected"),
        (("--repeats", "0"), "--repeats is 0; expected"),
        (("--warmup_steps", "-1"), "--warmup_steps is -1; expected 0 or more"),
        (("--warmup_steps", "3", "--batch_size", "8"), "has 3 batches of 8 rows, --warmup_steps 3"),
        (("--dataset_type", "synthetic", "--noshuffle"), "--noshuffle is only read with stored"),
        (("--feature_spec", "no.yaml"), "no.yaml: the file does not exist"),
    ],
)
def test_invalid_flags(binaries, capsys, flags, message):
    assert tool.main(["--dataset_path", str(binaries.base_directory), *flags]) == 2
    assert re.search(f"^error: .*{message}", capsys.readouterr().err)


@pytest.mark.parametrize("warmup_steps", [0, 2], ids=["timed", "in the warm-up"])
def test_invalid_row(tmp_path, capsys, warmup_steps):
    rows = rows_of(9)
    rows[3] = rows[3]._replace(one=100)
    original(tmp_path, rows).to_yaml(tmp_path / "feature_spec.yaml")
    flags = ["--dataset_path", str(tmp_path), "--dataset_type", "split_tfrecords"]
    flags += ["--batch_size", "3", "--warmup_steps", str(warmup_steps)]
    assert tool.main(flags) == 2
    assert re.fullmatch(r"error: .*feature 'one': found 100 in row 3 .*\n", capsys.readouterr().err)


def test_file_order(binaries, capsys):
    flags = ["--batch_size", "2", "--warmup_steps", "0", "--noshuffle"]
    assert tool.main(["--dataset_path", str(binaries.base_directory), *flags]) == 0
    assert "file order, 1 passes" in capsys.readouterr().out


def test_error_of_tensorflow(binaries, monkeypatch):
    def fail(*_):
        raise tf.errors.InternalError(None, None, "broken")

    loader = RawBinaryDataset(binaries, "train", 8)
    monkeypatch.setattr(loader, "dataset", fail)
    with pytest.raises(tf.errors.InternalError, match="broken"):
        time_pass(loader, 0, 0, 1)


def test_interrupt(binaries, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "benchmark", interrupt)
    assert tool.main(["--dataset_path", str(binaries.base_directory)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_flags_of_nvidia(binaries, monkeypatch, capsys):
    """Each batch has its pause; precision and compilation do not matter for batches."""
    pauses, eagerly, debug = [], [], []
    monkeypatch.setattr(tool.time, "sleep", pauses.append)
    monkeypatch.setattr(tf.config, "run_functions_eagerly", eagerly.append)
    monkeypatch.setattr(tf.data.experimental, "enable_debug_mode", lambda: debug.append(True))
    flags = ["--dataset_path", str(binaries.base_directory), "--batch_size", "2"]
    flags += ["--warmup_steps", "1", "--max_batches", "3", "--sleep", "0.25", "--amp", "--xla"]
    assert tool.main([*flags, "--run_eagerly", "--tfdata_debug"]) == 0
    assert (pauses, eagerly, debug) == ([0.25] * 3, [True], [True])
    assert tool.main([*flags, "--sleep", "-1"]) == 2
    assert "--sleep is -1.0; expected 0 or more" in capsys.readouterr().err


def test_default_folder(binaries, monkeypatch, tmp_path):
    """NVIDIA's default."""
    (tmp_path / "synthetic_dataset").symlink_to(binaries.base_directory)
    monkeypatch.chdir(tmp_path)
    assert tool.main(["--batch_size", "2", "--warmup_steps", "0"]) == 0
