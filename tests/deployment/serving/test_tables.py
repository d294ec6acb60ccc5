"""Lookups against a loop over rows and ids; stored float16 and int8 against their values."""

import mmap
from types import SimpleNamespace

import numpy as np
import pytest

from deployment.serving import checksums
from deployment.serving import tables as tables_module
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.tables import MappedTables, widen
from tests.deployment.serving.made_models import CATEGORICAL, CLICKS, TWO, WORDS, write_clicks


def test_sum_before_padded_lookup(tmp_path):
    """The rows of the tags follow those of the city: an absent tag does not read the last row of
    the city."""
    features = (CLICKS.features[2], CLICKS.features[3]._replace(padded=True))
    interface = CLICKS._replace(features=features, lookups=(CLICKS.lookups[1], CLICKS.lookups[0]))
    ids = np.int32([[3, -1, -1, 0, 0, 0], [1, 4, -1, 0, 0, 0], [2, 0, 1, 0, 0, 0]])
    result = MappedTables(write_clicks(tmp_path / "1"), interface).lookup({CATEGORICAL: ids})
    assert result.tolist() == [[0, 0, 3, -0.75], [8, -2, 1, -0.25], [9, -2.25, 2, -0.5]]


def made(folder, dtype, widths, in_one_file, hotness=1, sums=True):
    """Tables of 50 rows of some widths, each looked up by `hotness` ids; and their float32 rows."""
    rng = np.random.default_rng(0)
    (folder / "tables").mkdir(parents=True)
    stored, meant, tables = {}, {}, []
    for i, width in enumerate(widths):
        rows = rng.normal(size=(50, width)).astype(np.float32)
        scales = None
        if dtype == "int8":
            scales = np.abs(rows).max(1) / np.float32(127)
            rows = np.rint(rows / scales[:, None]).astype(np.int8)
        else:
            rows = rows.astype(dtype)
        file = f"{width}.npy" if in_one_file else f"{i}.npy"
        first_row = sum(len(part) for part, _ in stored.get(file, []))
        stored.setdefault(file, []).append((rows, scales))
        name = None if scales is None else f"scales_{file}"
        tables.append(ServedTable(f"t{i}", 50, width, dtype, file, name, first_row))
        meant[f"t{i}"] = rows.astype(np.float32)
        if scales is not None:
            meant[f"t{i}"] *= scales[:, None]
    for file, parts in stored.items():
        np.save(folder / "tables" / file, np.concatenate([rows for rows, _ in parts]))
        if dtype == "int8":
            scales = np.concatenate([scales for _, scales in parts])
            np.save(folder / "tables" / f"scales_{file}", scales)
    columns = range(0, len(widths) * hotness, hotness)
    interface = Interface(
        "dcnv2",
        (ServedTensor("ids", "int32", (len(widths) * hotness,)),),
        tuple(
            ServedFeature(t.name, "ids", c, hotness, 50)
            for t, c in zip(tables, columns, strict=True)
        ),
        tuple(
            ServedLookup(t.name, "ids", c, hotness, "sum" if sums else None)
            for t, c in zip(tables, columns, strict=True)
        ),
        tuple(tables),
        (),
    )
    return interface, meant


def by_loops(interface, meant, ids):
    rows = []
    for row in ids:
        parts = []
        for lookup in interface.lookups:
            vectors = meant[lookup.table][row[lookup.start : lookup.start + lookup.count]]
            parts.append(vectors.sum(0) if lookup.combiner else vectors.reshape(-1))
        rows.append(np.concatenate(parts))
    return np.stack(rows)


@pytest.mark.parametrize(
    ("threads", "dtype"), [(1, "float32"), (3, "float32"), (3, "float16"), (1, "int8")]
)
@pytest.mark.parametrize(
    ("widths", "in_one_file", "hotness", "sums"),
    [
        ((8, 8, 8), True, 1, True),
        ((8, 8, 8), False, 1, True),
        ((4, 8, 4), True, 1, None),
        ((8, 4, 8), True, 3, True),
        ((8, 8), True, 3, False),
    ],
    ids=["one_file", "a_file_each", "widths", "sums", "side_by_side"],
)
def test_against_loops(tmp_path, monkeypatch, dtype, widths, in_one_file, hotness, sums, threads):
    monkeypatch.setattr(tables_module, "_BLOCK_BYTES", 1000)  # several pieces
    monkeypatch.setattr(tables_module, "_BYTES_PER_THREAD", 100)
    interface, meant = made(tmp_path, dtype, widths, in_one_file, hotness, sums)
    tables = MappedTables(tmp_path, interface, threads)
    for rows in (1, 2, 37):
        ids = np.random.default_rng(rows).integers(0, 50, (rows, len(widths) * hotness), np.int32)
        result = tables.lookup({"ids": ids})
        np.testing.assert_allclose(result, by_loops(interface, meant, ids), rtol=0, atol=1e-6)
    tables.close()


def test_exact_widening_of_float16():
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = bits[np.isfinite(bits)]
    result = np.empty(len(finite), np.float32)
    widen(finite, None, result)
    assert np.array_equal(result.view(np.uint32), finite.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("two.npy", None, r"two.npy: is not a table .*; deploy the checkpoint again"),
        ("two.npy", np.zeros((8, 2), "f4"), r"float32 \[8, 2\]; table 'tags' needs .*\[9 or more"),
        ("two.npy", np.zeros((9, 2), "f2"), r"holds float16 \[9, 2\]; table 'city' needs float32"),
        ("words.npy", np.zeros(18, "f4"), r"float32 \[18\]; table 'words' needs float32"),
    ],
)
def test_files_unlike_interface(tmp_path, file, content, message):
    folder = write_clicks(tmp_path / "1")
    (folder / "tables" / file).write_bytes(b"")
    if content is not None:
        np.save(folder / "tables" / file, content, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        MappedTables(folder, CLICKS)


def test_scales_unlike_interface(tmp_path):
    interface, _ = made(tmp_path, "int8", (4,), True)
    np.save(tmp_path / "tables/scales_4.npy", np.zeros(49, np.float32))
    with pytest.raises(ValueError, match=r"float32 \[49\]; table 't0' needs float32 \[50\]"):
        MappedTables(tmp_path, interface)
    without = interface._replace(tables=(interface.tables[0]._replace(scales=None),))
    with pytest.raises(ValueError, match="table 't0' needs int8"):
        MappedTables(tmp_path, without)


@pytest.mark.parametrize(
    ("available", "preload", "advice"),
    [
        (2, True, mmap.MADV_WILLNEED),
        (2, False, None),
        (1.9, True, mmap.MADV_RANDOM),
        (1.9, False, mmap.MADV_RANDOM),
    ],
)
def test_preload_by_available_memory(tmp_path, monkeypatch, available, preload, advice):
    """The kernel reads whole files, or one page per row without its neighbours."""
    advised = set()
    monkeypatch.setattr(tables_module, "_map_of", lambda _: SimpleNamespace(madvise=advised.add))
    size_bytes = TWO.nbytes + WORDS.nbytes
    monkeypatch.setattr(tables_module, "available_bytes", lambda: int(available * size_bytes))
    folder = write_clicks(tmp_path / "1")
    checksums.write(folder)
    tables = MappedTables(folder, CLICKS, preload=preload)
    assert (tables.size_bytes, tables.fits) == (size_bytes, available == 2)
    assert advised == ({advice} if advice is not None else set())
