"""Damage of any file of a checkpoint is detected and reported, and never loaded into a model."""

import contextlib
import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from runtime import checkpoint
from runtime.checkpoint import Box, DamagedCheckpoint
from runtime.checkpoint.__main__ import main
from runtime.checkpoint.files import INDEX, checksum, read_index
from runtime.checkpoint.reader import verify
from runtime.files.outputs import MARKER
from tests.runtime.checkpoint.array_weights import ArrayWeight, like, on_ranks, save, save_on_ranks

RANKS = 3


def model(rank: int = 0, seed: int = 0) -> list[ArrayWeight]:
    """Weights that three ranks hold whole, cut by rows, by columns, and both."""
    draw = np.random.default_rng(seed)

    def weight(name, shape, cuts=None, dtype=np.float32):
        values = draw.normal(size=shape) * 100
        return ArrayWeight(name, np.asarray(values, dtype), cuts, rank)

    rows = [[Box(0, 8, 0, 5)], [Box(8, 16, 0, 5)], [Box(16, 23, 0, 5)]]
    of_rows = [[box._replace(column_end=1) for box in boxes] for boxes in rows]
    columns = [[Box(0, 11, 0, 3)], [Box(0, 11, 3, 5)], [Box(0, 11, 5, 7)]]
    both = [[Box(0, 9, 0, 4)], [Box(9, 17, 0, 3)], [Box(9, 17, 3, 4)]]
    return [
        weight("dense/kernel", (4, 3)),
        weight("dense/cube", (2, 3, 2)),
        weight("dense.scalars/power", ()),
        weight("sparse/rows", (23, 5), rows),
        weight("sparse/columns", (11, 7), columns),
        weight("sparse/both ü/%", (17, 4), both),
        weight("sparse/empty", (0, 4)),
        weight("sparse.row_accumulator/rows", (23,), of_rows),
        weight("sparse.count/rows", (5, 2), None, np.int64),
    ]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Two or three rows a block, so that pieces have several checksums."""
    monkeypatch.setattr("runtime.checkpoint.files.BLOCK_BYTES", 40)


@pytest.fixture
def saved(tmp_path) -> Path:
    """The second of two checkpoints in a folder, each saved by three ranks."""
    save_on_ranks(tmp_path / "all", RANKS, lambda rank: model(rank, seed=1), step=1)
    path = save_on_ranks(tmp_path / "all", RANKS, model, step=2)
    assert {f for _, f in verify(path)} == {None}
    return path


def files_of(path: Path) -> list[str]:
    """All files but the index."""
    result = (f.relative_to(path) for f in path.rglob("*") if f.is_file())
    return sorted(str(f) for f in result if f.name != INDEX)


def faults(path: Path) -> dict[str, str]:
    """Returns the faults that `verify` finds."""
    return {file: fault for file, fault in verify(path) if fault}


def check_refused(path: Path, file: str, expected: str = "") -> None:
    """`file` alone is damaged, and the checkpoint does not count as complete."""
    result = faults(path)
    assert list(result) == [file], result
    assert str(path / file) in result[file] and expected in result[file]
    with pytest.raises(DamagedCheckpoint, match=re.escape(str(path / file))):
        checkpoint.restore(path, like(model()))


def check_said(path: Path, file: str, capsys) -> None:
    """`python -m runtime.checkpoint verify` names the file and the checkpoint before."""
    assert main(["verify", str(path)]) == 1
    printed = capsys.readouterr().out
    assert str(path / file) in printed
    assert "00001-step-1" in printed


@contextlib.contextmanager
def flipped(file: Path, place: int, bit: int = 0):
    """One bit of a file is wrong for a while; a negative place counts from the end."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        place %= os.fstat(descriptor).st_size
        (value,) = os.pread(descriptor, 1, place)
        os.pwrite(descriptor, bytes([value ^ 1 << bit]), place)
        yield
        os.pwrite(descriptor, bytes([value]), place)
    finally:
        os.close(descriptor)


def test_round_trip(saved):
    """One rank restores the shards of three; the files keep their cuts."""
    weights = like(model())
    checkpoint.restore(saved, weights)
    for got, expected in zip(weights, model(), strict=True):
        np.testing.assert_array_equal(got.values, expected.values, err_msg=got.name)
    assert len(files_of(saved)) == 1 + 1 + 1 + 3 + 3 + 3 + 0 + 3 + 1
    assert main(["verify", str(saved)]) == 0


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.long)])
def test_every_byte_of_every_file(saved, stride):
    """One flipped bit, in header and values: the file is named, and nothing is restored of it.

    Every `stride`-th byte has its turn; of the spaces that fill a header up only some.
    """
    start_of = {
        piece.file: piece.start
        for entry in read_index(saved).weights.values()
        for piece in entry.pieces
    }
    for file in files_of(saved):
        start, size = start_of[file], (saved / file).stat().st_size
        places = [*range(140), *range(140, start - 9, 131), *range(start - 9, size)]
        for place in places[::stride]:
            with flipped(saved / file, place, place % 8):
                check_refused(saved, file, "the checksum differs")
    assert not faults(saved)


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.long)])
def test_every_byte_of_the_index(saved, bits):
    """Bits of each byte flipped in turn, of its first line too."""
    unnoticed, unnamed, not_damaged = [], [], []
    for place, number in itertools.product(range((saved / INDEX).stat().st_size), range(bits)):
        bit = (place + number) % 8
        with flipped(saved / INDEX, place, bit):
            try:
                read_index(saved)
            except DamagedCheckpoint as error:
                if str(saved / INDEX) not in str(error) or "damaged" not in str(error):
                    unnamed.append((place, bit, str(error)))
            except ValueError as error:
                not_damaged.append((place, bit, str(error)))
            else:
                unnoticed.append((place, bit))
    assert not unnoticed
    assert not unnamed
    assert not not_damaged, f"{len(not_damaged)} are not called damage: {not_damaged[:3]}"


@pytest.mark.parametrize("place", [0, 40, -1])
def test_damaged_index(saved, capsys, place):
    with flipped(saved / INDEX, place):
        check_refused(saved, INDEX)
        check_said(saved, INDEX, capsys)
        for command in (["inspect"], ["export", "--output", str(saved.parent / "out")]):
            assert main([command[0], str(saved), *command[1:]]) == 1, command
            assert str(saved / INDEX) in capsys.readouterr().err


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


# What is done to a file; `other` is a file of the same size with other content.
DAMAGE = {
    "one byte short": lambda path, other: os.truncate(path, path.stat().st_size - 1),
    "cut in its header": lambda path, other: os.truncate(path, 20),
    "empty": lambda path, other: os.truncate(path, 0),
    "one byte more": lambda path, other: path.write_bytes(path.read_bytes() + b"\0"),
    "zeros": lambda path, other: path.write_bytes(bytes(path.stat().st_size)),
    "missing": lambda path, other: path.unlink(),
    "a folder": lambda path, other: replaced_by_a_folder(path),
    "of another checkpoint": lambda path, other: path.write_bytes(other.read_bytes()),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_of_every_file(saved, capsys, kind):
    other = saved.parent / "00001-step-1"
    for number, file in enumerate(files_of(saved)):
        whole = (saved / file).read_bytes()
        DAMAGE[kind](saved / file, other / file)
        check_refused(saved, file)
        if number % 5 == 0:  # the command has the same words
            check_said(saved, file, capsys)
            assert main(["export", str(saved), "--output", str(saved.parent / "out")]) == 1
            printed = capsys.readouterr().err
            assert str(saved / file) in printed and str(other) in printed
        if (saved / file).is_dir():
            (saved / file).rmdir()
        (saved / file).write_bytes(whole)
    assert not faults(saved)


def test_swapped_blocks(saved):
    """Each of the two is valid."""
    file = saved / "sparse/rows,rows=0-8.npy"
    (piece, *_) = read_index(saved).weights["sparse/rows"].pieces
    size, data = piece.block_rows * 5 * 4, file.read_bytes()
    first, second = data[piece.start :][:size], data[piece.start + size :][:size]
    file.write_bytes(data[: piece.start] + second + first + data[piece.start + 2 * size :])
    check_refused(saved, "sparse/rows,rows=0-8.npy", "in block 0")


def test_unknown_file(saved, capsys):
    """It is not read, and `verify` reports that it does not belong there."""
    (saved / "sparse/left over.npy").write_bytes(b"x")
    assert list(faults(saved)) == ["sparse/left over.npy"]
    check_said(saved, "sparse/left over.npy", capsys)
    checkpoint.restore(saved, like(model()))


@pytest.mark.parametrize("index", ["of the other checkpoint", "cut", "empty", "not JSON", "zeros"])
def test_replaced_index(saved, index):
    data = (saved / INDEX).read_bytes()
    content = {
        "of the other checkpoint": (saved.parent / "00001-step-1" / INDEX).read_bytes(),
        "cut": data[: len(data) // 2],
        "empty": b"",
        "not JSON": b"checkpoint",
        "zeros": bytes(len(data)),
    }[index]
    (saved / INDEX).write_bytes(content)
    assert faults(saved)
    with pytest.raises(DamagedCheckpoint, match=re.escape(str(saved))):
        checkpoint.restore(saved, like(model()))


def test_missing_index(saved, capsys):
    (saved / INDEX).unlink()
    assert list(faults(saved)) == [INDEX]
    assert main(["verify", str(saved)]) == 2
    assert f"{saved} neither is nor contains a checkpoint" in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"{re.escape(str(saved))} is not a checkpoint"):
        checkpoint.restore(saved, like(model()))


def test_damage_on_another_rank(saved):
    """With another cut: rows on two ranks, of which the first needs rows 8 to 12 of the file."""
    file = "sparse/rows,rows=8-16.npy"
    cuts = [[Box(0, 12, 0, 5)], [Box(12, 23, 0, 5)]]
    whole = {w.name: w.values for w in model()}["sparse/rows"]

    def restore(world):
        weight = ArrayWeight("sparse/rows", np.zeros_like(whole), cuts, world.rank)
        others = [
            w for w in like(model()) if w.name.startswith("sparse/") and w.name != weight.name
        ]
        checkpoint.restore(saved, [weight, *others])
        return weight.values

    with flipped(saved / file, -1):  # row 15, of the second rank
        first, second = on_ranks(2, restore)
    np.testing.assert_array_equal(first[:12], whole[:12])
    assert isinstance(second, DamagedCheckpoint) and str(saved / file) in str(second)


def test_suggested_checkpoint_is_readable(tmp_path):
    """The newest of three checkpoints has a damaged file and the one before a damaged index."""
    paths = [save_on_ranks(tmp_path, 1, one_array, step=step) for step in (1, 2, 3)]
    with (
        flipped(paths[2] / "dense/a.npy", -3),
        flipped(paths[1] / INDEX, -3),
        pytest.raises(DamagedCheckpoint, match=rf"--resume {re.escape(str(paths[0]))}"),
        checkpoint.suggest_previous(paths[2], "--resume"),
    ):
        checkpoint.restore(paths[2], one_array())
    with (
        pytest.raises(DamagedCheckpoint, match="there is no earlier one in its folder"),
        checkpoint.suggest_previous(paths[0], "--resume"),
    ):
        raise DamagedCheckpoint("x")


def one_array(rank: int = 0) -> list[ArrayWeight]:
    """One small weight."""
    return [ArrayWeight("dense/a", np.arange(6, dtype=np.float32), None, rank)]


# The command.


def test_command(saved, tmp_path, capsys):
    assert main(["verify", str(saved.parent)]) == 0
    assert "00002-step-2 is complete: 17 files" in capsys.readouterr().out
    assert main(["inspect", str(saved)]) == 0
    printed = capsys.readouterr().out
    assert "sparse/rows  float32  23 x 5  in 3 pieces" in printed
    assert "dense.scalars/power  float32  scalar  in 1 pieces" in printed
    assert "other checkpoints: 00001-step-1" in printed
    for weights, kept in (("", model()), ("sparse/", model()[3:7])):
        out = tmp_path / f"out{weights}"
        flags = ["--weights", weights] if weights else []
        assert main(["export", str(saved.parent), "--output", str(out), *flags]) == 0
        assert len(list(out.rglob("*.npy"))) == len(kept)
        assert list(out.rglob(".*")) == [out / MARKER]
        for weight in kept:
            file = weight.name.replace("both ü/%", "both%20%C3%BC%2F%25") + ".npy"
            got = np.load(out / file)
            np.testing.assert_array_equal(got, weight.values, err_msg=weight.name, strict=True)


def test_inspected_flags(tmp_path, capsys):
    """Lists have commas, as on a command line; values that are absent are left out."""
    flags = {"top_mlp_dims": [16, 1], "epochs": 2, "days": None}
    path = save(tmp_path / "model", one_array(), {"flags": flags})
    assert main(["inspect", str(path)]) == 0
    assert "\nflags: --top_mlp_dims=16,1 --epochs=2\n" in capsys.readouterr().out


def test_inspect_as_json(saved, capsys):
    assert main(["inspect", str(saved), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["path"] == str(saved)
    pieces = content["weights"]["sparse/columns"]["pieces"]
    assert [piece["box"] for piece in pieces] == [[0, 11, 0, 3], [0, 11, 3, 5], [0, 11, 5, 7]]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "nowhere: the folder does not exist"),
        ("all/00002-step-2/checkpoint.json", "or a file that torch.save wrote, got another file"),
        ("empty", "empty neither is nor contains a checkpoint"),
        ("original", "NVIDIA's recipe"),
    ],
)
def test_wrong_path(saved, tmp_path, capsys, path, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "original/sparse").mkdir(parents=True)
    (tmp_path / "original/sparse/config.json").write_text("{}")
    for command in ("inspect", "verify", "export"):
        output = ["--output", str(tmp_path / "out")] if command == "export" else []
        assert main([command, str(tmp_path / path), *output]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_unknown_prefix(saved, tmp_path, capsys):
    flags = ["--output", str(tmp_path / "out"), "--weights", "spares/"]
    assert main(["export", str(saved), *flags]) == 2
    printed = capsys.readouterr().err
    assert "begins with 'spares/'" in printed and "sparse/columns" in printed


def test_output_that_exists(saved, tmp_path, capsys):
    """Neither a file nor a folder with other files is replaced."""
    file = tmp_path / "folder/dense/kernel.npy"
    file.parent.mkdir(parents=True)
    file.write_text("own")
    for output in (file, tmp_path / "folder"):
        assert main(["export", str(saved), "--output", str(output)]) == 2
        assert f"error: {output}" in capsys.readouterr().err and file.read_text() == "own"


def rewrite_index(path: Path, change) -> None:
    """Changes the weights of an index and gives it a valid checksum, as a forger would."""
    content = json.loads((path / INDEX).read_text())
    del content["checksum"]
    change(content["weights"])
    rest = json.dumps(content).removeprefix("{").encode()
    (path / INDEX).write_bytes(b'{"checksum": "%s",\n' % checksum(rest).encode() + rest)


@pytest.mark.parametrize("name", ["../evil", "/evil", "./evil", ".hidden/evil"])
def test_weight_names_outside_of_the_checkpoint(saved, tmp_path, name, capsys):
    rewrite_index(saved, lambda weights: weights.update({name: weights.pop("dense/kernel")}))
    out = tmp_path / "deep/out"
    assert main(["export", str(saved), "--output", str(out)]) == 1
    assert f"the weight {name!r}" in capsys.readouterr().err
    assert not out.exists() and not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("file", ["../00001-step-1/dense/kernel.npy", "/dense.npy", "a/../../b"])
def test_pieces_outside_of_the_checkpoint(saved, tmp_path, file, capsys):
    rewrite_index(saved, lambda weights: weights["dense/kernel"]["pieces"][0].update(file=file))
    assert main(["verify", str(saved)]) == 1
    assert f"the file {file!r}" in capsys.readouterr().out
