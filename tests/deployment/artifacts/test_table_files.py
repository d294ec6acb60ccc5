"""Tables streamed out of a checkpoint: as they are, as float16, as int8 with scales."""

import tracemalloc

import numpy as np
import pytest

from deployment.artifacts.quantization_check import lookup
from deployment.artifacts.table_files import blocks_of, to_float16, to_int8, write_tables
from deployment.model.checkpoint_rows import CheckpointRows
from deployment.serving.interface import (
    TABLES_FOLDER,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.tables import MappedTables
from runtime.checkpoint import Box, DamagedCheckpoint, part_writer
from runtime.checkpoint import files as checkpoint_files
from tests.deployment.artifacts.saved_tables import save_tables, sizes

RNG = np.random.default_rng(7)
TABLES = {
    "user/id": RNG.normal(size=(700, 6)).astype(np.float32),
    "wide": RNG.normal(size=(40, 10)).astype(np.float32),
    "item": RNG.normal(size=(300, 6)).astype(np.float32),
}
# By rows, by columns, and by both, as ranks with sliced tables save them.
CUTS = {
    "user/id": [[Box(0, 333, 0, 6)], [Box(333, 700, 0, 6)]],
    "wide": [[Box(0, 40, 0, 3)], [Box(0, 40, 3, 10)]],
    "item": [[Box(0, 100, 0, 6), Box(100, 300, 0, 2)], [Box(100, 300, 2, 6)]],
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that tables have many."""
    monkeypatch.setattr(checkpoint_files, "BLOCK_BYTES", 4096)


@pytest.fixture
def trained(tmp_path, small_blocks):
    """The tables in pieces of two ranks."""
    return save_tables(tmp_path / "checkpoints", TABLES, CUTS)


def test_float32_tables(trained, tmp_path):
    written = write_tables(trained, sizes(TABLES), tmp_path)
    assert written == (
        ServedTable("user/id", 700, 6, "float32", "dim_6.npy", None, 0),
        ServedTable("wide", 40, 10, "float32", "dim_10.npy", None, 0),
        ServedTable("item", 300, 6, "float32", "dim_6.npy", None, 700),
    )
    both = np.load(tmp_path / "dim_6.npy", mmap_mode="r")
    np.testing.assert_array_equal(both, np.concatenate([TABLES["user/id"], TABLES["item"]]))
    np.testing.assert_array_equal(np.load(tmp_path / "dim_10.npy"), TABLES["wide"])
    assert len(list(blocks_of(trained, "user/id"))) > 1, "in blocks"


def test_int8_by_hand():
    rows = [[127.0, -63.6, 0.4], [0.0, 0.0, 0.0], [-2.54, 0.02, 0.01]]
    values, scales = to_int8(np.array(rows, np.float32))
    np.testing.assert_array_equal(values, [[127, -64, 0], [0, 0, 0], [-127, 1, 0]])
    np.testing.assert_allclose(scales, [1, 0, 0.02])


def test_int8_of_smallest_and_largest_numbers():
    """Subnormal values become zeros and never wrap around; large ones keep their scale."""
    least, most = np.float32(1e-45), np.float32(1e38)
    values, scales = to_int8(np.array([[least * 189, 0], [most, -most / 4]], np.float32))
    np.testing.assert_array_equal(values, [[0, 0], [127, -32]])
    assert scales[0] == 0
    np.testing.assert_allclose(np.float32(127) * scales[1], most, rtol=1e-6)


def test_float16_overflow(tmp_path, small_blocks):
    values = np.zeros((5000, 4), np.float32)
    values[3210, 2], values[4000, 0] = -70_000, 1e9
    trained = save_tables(tmp_path / "checkpoints", {"t": values})
    message = (
        r"--quantize_tables fp16: table t, row 3210 has the value -70000, the largest float16 is "
        "65504: use --quantize_tables int8"
    )
    with pytest.raises(ValueError, match=message):
        write_tables(trained, [ServedTable("t", 5000, 4)], tmp_path, "fp16")
    assert to_float16(np.array([[65504.0]], np.float32), "t", [0])[0, 0] == 65504
    of_ids = {"ids": np.array([[0, 3210]])}
    with pytest.raises(ValueError, match=message):
        lookup(CheckpointRows(trained, "t"), ServedLookup("t", "ids", 0, 2, "sum"), of_ids, "fp16")


@pytest.mark.parametrize(
    ("quantize", "value"), [("none", np.nan), ("fp16", -np.inf), ("int8", np.nan)]
)
def test_values_not_finite(tmp_path, monkeypatch, small_blocks, value, quantize):
    values = np.zeros((5000, 4), np.float32)
    values[3210, 2] = value
    with monkeypatch.context() as patch:
        # A trainer saves no such checkpoint.
        patch.setattr(part_writer.np, "isfinite", np.ones_like)
        trained = save_tables(tmp_path / "checkpoints", {"t": values})
    message = f"^table t, row 3210 has the value {value} in the checkpoint, .* deploy another"
    with pytest.raises(ValueError, match=message):
        write_tables(trained, [ServedTable("t", 5000, 4)], tmp_path, quantize)
    of_ids, how = {"ids": np.array([[3210]])}, None if quantize == "none" else quantize
    with pytest.raises(ValueError, match=message):
        lookup(CheckpointRows(trained, "t"), ServedLookup("t", "ids", 0, 1, "sum"), of_ids, how)


def test_corrupt_checkpoint(trained, tmp_path):
    file = next(trained.path.rglob("wide,columns=3-10.npy"))
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(
        DamagedCheckpoint, match=r"wide,columns=3-10\.npy is missing or damaged: the check"
    ):
        write_tables(trained, sizes(TABLES), tmp_path)


@pytest.mark.parametrize("quantize", ["none", "fp16", "int8"])
def test_auc_of_served_rows(trained, tmp_path, quantize):
    """The lookups of `served_auc` and of the served model are equal bit for bit."""
    (tmp_path / TABLES_FOLDER).mkdir()
    lookups = (
        ServedLookup("item", "ids", 0, 2, None),
        ServedLookup("wide", "ids", 2, 3, "sum"),
        ServedLookup("user/id", "ids", 5, 1, "sum"),
    )
    features = tuple(
        ServedFeature(entry.table, "ids", entry.start, entry.count, 40, entry.table == "wide")
        for entry in lookups
    )
    interface = Interface(
        *("test", (ServedTensor("ids", "int32", (6,)),), features, lookups),
        write_tables(trained, sizes(TABLES), tmp_path / TABLES_FOLDER, quantize),
        (),
    )
    ids = np.random.default_rng(5).integers(0, 40, (50, 6)).astype(np.int32)
    ids[3, 2:5], ids[4, 4] = -1, -1
    result = [
        lookup(CheckpointRows(trained, entry.table), entry, {"ids": ids}, quantize)
        for entry in lookups
    ]
    served = MappedTables(tmp_path, interface).lookup({"ids": ids})
    np.testing.assert_array_equal(np.concatenate(result, axis=1), served)
    assert not served[3, 12:22].any(), "a row without ids"
    assert CheckpointRows(trained, "item").take(np.zeros(0, np.int32)).shape == (0, 6)


@pytest.mark.parametrize("quantize", ["none", "fp16", "int8"])
def test_peak_memory(tmp_path, monkeypatch, quantize):
    """A table of 8 MiB in blocks of 64 KiB."""
    monkeypatch.setattr(checkpoint_files, "BLOCK_BYTES", 65536)
    trained = save_tables(tmp_path / "checkpoints", {"t": np.ones((131072, 16), np.float32)})
    tracemalloc.start()
    try:
        write_tables(trained, [ServedTable("t", 131072, 16)], tmp_path, quantize)
        assert tracemalloc.get_traced_memory()[1] < 10 * 65536
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fault", ["missing", "cut"])
def test_missing_or_short_file(trained, fault):
    file = next(trained.path.rglob("wide,columns=3-10.npy"))
    data = file.read_bytes()
    file.unlink()
    if fault == "cut":
        file.write_bytes(data[:-1])
    with pytest.raises(DamagedCheckpoint, match=r"10\.npy is missing or damaged: "):
        CheckpointRows(trained, "wide")
