"""Lookups against a loop over rows and ids; stored float16 and int8 against their values."""

import ctypes
import mmap
import os
import time

import numpy as np
import pytest

from deployment.serving import tables as tables_module
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.tables import MappedTables, widen
from tests.deployment.serving.made_models import (
    CATEGORICAL,
    CLICKS,
    expected_embeddings,
    request,
    write_clicks,
)


def test_sum_before_padded_lookup(tmp_path):
    """The rows of the tags follow those of the city: an absent tag does not read the last row of
    the city."""
    features = (CLICKS.features[2], CLICKS.features[3]._replace(padded=True))
    interface = CLICKS._replace(features=features, lookups=(CLICKS.lookups[1], CLICKS.lookups[0]))
    ids = np.int32([[3, -1, -1, 0, 0, 0], [1, 4, -1, 0, 0, 0], [2, 0, 1, 0, 0, 0]])
    result = MappedTables(write_clicks(tmp_path / "1"), interface).lookup({CATEGORICAL: ids})
    assert result.tolist() == [[0, 0, 3, -0.75], [8, -2, 1, -0.25], [9, -2.25, 2, -0.5]]


def test_output_memory(tmp_path):
    tables = MappedTables(write_clicks(tmp_path / "1"), CLICKS)
    out = np.full((3, 7), np.nan, np.float32)
    assert tables.lookup(request(3), out) is out
    assert np.array_equal(out, expected_embeddings(request(3)))
    tables.close()
    assert np.array_equal(out, expected_embeddings(request(3)))


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


def cached_share(path):
    """Share of a file that is in memory, 0 to 1."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        size, result = ctypes.c_size_t(len(mapped)), ctypes.c_void_p(pages.ctypes.data)
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), size, result) == 0
    return (pages & 1).mean()


@pytest.mark.parametrize(
    ("available", "preload", "share"), [(2, True, "all"), (1.9, True, "one"), (1.9, False, "one")]
)
def test_preload_by_available_memory(tmp_path, monkeypatch, available, preload, share):
    """Reads the whole file, or one page per row without its neighbours."""
    rows = 1 << 15
    interface = CLICKS._replace(
        inputs=(ServedTensor("ids", "int64", (1,)),),
        features=(ServedFeature("a", "ids", 0, 1, rows),),
        lookups=(ServedLookup("a", "ids", 0, 1, "sum"),),
        tables=(ServedTable("a", rows, 64, "float32", "a.npy"),),
    )
    (tmp_path / "tables").mkdir()
    file = tmp_path / "tables/a.npy"
    np.save(file, np.arange(rows * 64, dtype=np.float32).reshape(rows, 64))  # 8 MiB
    with open(file, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(file) > 0.01:
        pytest.skip("this folder's files are always in memory")
    monkeypatch.setattr(tables_module, "available_bytes", lambda: int(available * 8 * 2**20))
    tables = MappedTables(tmp_path, interface, preload=preload)
    assert (tables.size_bytes, tables.fits) == (8 * 2**20, share == "all")
    result = tables.lookup({"ids": np.int64([[20_000]])})
    assert result[0, 0] == 20_000 * 64
    deadline = time.monotonic() + 30
    while share == "all" and cached_share(file) < 0.99 and time.monotonic() < deadline:
        time.sleep(0.01)  # it is read in the background
    # Otherwise some pages at the start: NumPy reads the header of the array.
    assert cached_share(file) > 0.99 if share == "all" else cached_share(file) < 0.05
