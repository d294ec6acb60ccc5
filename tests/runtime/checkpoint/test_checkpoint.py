import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.box import Box
from distributed_embeddings.collectives import CollectiveError, World
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.planner import DATA_PARALLEL, Shard
from embedding_testing.fake_world import run_threads
from embedding_testing.tables import whole_table

from runtime import checkpoint
from runtime.checkpoint import Folder, VariableWeight, files, part_writer, weight
from runtime.checkpoint.part_writer import Writer
from runtime.checkpoint.resume import Request, find
from runtime.checkpoint.saver import Saver
from runtime.checkpoint.weight import matrix_of
from runtime.cluster.heartbeat import Heartbeat, StragglerBarrier
from tests.runtime.checkpoint.array_weights import save


def some_weights(fill=0.0, rows=5):
    table = tf.Variable(tf.fill([rows + 2, 3], fill))
    kernel = tf.Variable(tf.fill([2, 2], fill))
    return [
        VariableWeight("dense/mlp/kernel", kernel),
        VariableWeight("dense.scalars/power", tf.Variable(fill)),
        whole_table("sparse/cat", rows, table, offset=2),
    ]


def value(some):
    """All of a weight."""
    return some.read(matrix_of(some.shape))


def saved(path, fill=1.0, **description):
    return save(path, some_weights(fill), description)


def test_round_trip(tmp_path, monkeypatch):
    monkeypatch.setattr(weight, "BLOCK_BYTES", 24)
    monkeypatch.setattr(files, "BLOCK_BYTES", 24)  # two rows a block
    old, new = some_weights(), some_weights(9.0)
    old[0].write(0, np.arange(4, dtype="f").reshape(2, 2))
    old[1].write(0, np.full([1, 1], 0.25, "f"))
    old[2].write(0, np.arange(15, dtype="f").reshape(5, 3))
    path = save(tmp_path / "a/model", old, {"recipe": "x"}, step=7)
    assert path == tmp_path / "a/model/00001-step-7"
    index = checkpoint.describe(path)
    assert index.description == {"recipe": "x"} and index.state == {}
    assert index.size_bytes == 4 * 4 + 4 + 15 * 4
    (piece,) = index.weights["sparse/cat"].pieces
    assert len(piece.checksums) == 1 + 3, "the header's, and of each block one"
    checkpoint.restore(path, new)
    np.testing.assert_array_equal(value(new[0]), [[0, 1], [2, 3]])
    assert new[1].variable.numpy() == 0.25
    np.testing.assert_array_equal(value(new[2]), np.arange(15).reshape(5, 3))
    np.testing.assert_array_equal(new[2].local[0].variable.numpy()[:2], np.full([2, 3], 9.0))
    # Whole arrays as plain .npy files.
    table = np.load(path / "sparse/cat.npy")
    np.testing.assert_array_equal(table, np.arange(15).reshape(5, 3))
    assert np.load(path / "dense.scalars/power.npy").shape == ()


def test_newest_and_deletion_of_oldest(tmp_path):
    checkpoints, steps = Folder(tmp_path), (300, 100, 200)
    for step in steps:  # a training that went back to an older checkpoint
        save(tmp_path, some_weights(float(step)), {}, step=step)
    assert [(s.number, s.step) for s in checkpoints.list()] == [(2, 100), (3, 200)]
    assert checkpoints.newest().path == checkpoint.resolve(tmp_path)
    assert checkpoints.previous(checkpoints.newest().path).name == "00002-step-100"
    assert checkpoints.previous(checkpoints.list()[0].path) is None


@pytest.mark.parametrize("name", ["sparse/../../escape", "sparse/a/b", "sparse/..", "sparse/ü %"])
def test_special_characters_in_feature_names(tmp_path, name):
    some = VariableWeight(name, tf.Variable([1.0, 2.0]))
    path = save(tmp_path / "x/model", [some], {})
    assert len(list((path / "sparse").iterdir())) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    some.write(0, np.zeros([2, 1], "f"))
    checkpoint.restore(path, [some])
    np.testing.assert_array_equal(value(some), [[1], [2]])


def table_of(rank, cut, rows=7, dim=4):
    """A table of `dim` columns, cut by rows and columns into boxes, one per rank."""
    shards = tuple(
        Shard(0, r, row, row_end, column, column_end, *kind)
        for r, (row, row_end, column, column_end, *kind) in enumerate(cut)
    )
    mine = [shard for shard in shards if shard.rank == rank]
    local = tuple(LocalShard(s, tf.Variable(tf.zeros([s.rows, s.columns])), 0) for s in mine)
    whole = np.arange(rows * dim, dtype="f").reshape(rows, dim)
    table = TableWeight("sparse/t", (rows, dim), np.dtype("f"), World(), shards, local)
    return table, whole


CUTS = {
    "one": [(0, 7, 0, 4)],
    "rows": [(0, 3, 0, 4), (3, 4, 0, 4), (4, 7, 0, 4)],
    "columns": [(0, 7, 0, 1), (0, 7, 1, 4)],
    "copies": [(0, 7, 0, 4, DATA_PARALLEL), (0, 7, 0, 4, DATA_PARALLEL)],
}


@pytest.mark.parametrize("before", CUTS)
@pytest.mark.parametrize("after", CUTS)
def test_resharding(tmp_path, monkeypatch, before, after):
    """Weights that the ranks of one run wrote, read by the ranks of another."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 32)
    written, cut = {}, CUTS[before]
    for rank in range(len(cut)):
        table, whole = table_of(rank, cut)
        table.write(0, whole)
        slots = {table.local[0].variable.ref(): tf.Variable(whole[: table.local[0].shard.rows, 0])}
        by_row = table.state("sparse.rows/t", slots, by_row=True)
        row = table.local[0].shard.row_start
        by_row.write(row, whole[row : row + table.local[0].shard.rows, :1])
        for some in (table, by_row):
            job = Writer(tmp_path, 100, str)
            job.start()
            for box in some.saved_by(rank):
                rows_each = files.rows_of_block(box.columns, some.dtype)
                assert job.add(some, box, rows_each, map(some.read, box.blocks(rows_each)))
            job.close()
            job.join()
            assert job.fault is None
            for name, created in job.pieces.items():
                shape, pieces = written.get(name, (some.shape, ()))
                written[name] = (shape, (*pieces, *created))
    entries = {
        name: files.WeightEntry(shape, np.dtype("f"), pieces)
        for name, (shape, pieces) in written.items()
    }
    for name, entry in entries.items():
        assert sum(p.box.size for p in entry.pieces) == np.prod(entry.shape), name
    files.write_index(tmp_path, files.Index({}, {}, entries, {}))
    for rank in range(len(CUTS[after])):
        table, whole = table_of(rank, CUTS[after])
        (stored,) = table.local
        rows = tf.Variable(tf.zeros([stored.shard.rows]))
        by_row = table.state("sparse.rows/t", {stored.variable.ref(): rows}, by_row=True)
        checkpoint.restore(tmp_path, [table, by_row])
        shard = stored.shard
        mine = whole[shard.row_start : shard.row_end]
        expected = mine[:, shard.column_start : shard.column_end]
        np.testing.assert_array_equal(stored.variable, expected)
        np.testing.assert_array_equal(rows, mine[:, 0])


def test_failed_save(tmp_path):
    old = saved(tmp_path, 1.0, n=1)

    class Broken(TableWeight):
        def read(self, box):
            (staging,) = tmp_path.glob(".writing-*")
            raise MemoryError(f"while {staging.name} is written")

    broken = [whole_table("sparse/cat", 5, tf.Variable(tf.zeros([7, 3])), kind=Broken)]
    with pytest.raises(MemoryError, match="while .writing-00002-step-0"):
        save(tmp_path, broken, {"n": 2})
    assert checkpoint.resolve(tmp_path) == old
    assert saved(tmp_path, 2.0).name == "00002-step-0", "left-over files are removed"
    assert not list(tmp_path.glob(".writing-*"))


def test_other_files_in_the_folder(tmp_path):
    for name in ("thesis", "00001-step", "step-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keep").write_text("years of work")
    for n in range(4):
        saved(tmp_path, float(n))
    assert all((tmp_path / name / "keep").exists() for name in ("thesis", "00001-step", "step-1"))
    assert len(Folder(tmp_path).list()) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(tmp_path, bad):
    old = saved(tmp_path, 1.0)
    with pytest.raises(checkpoint.NonFiniteWeight, match="dense/mlp/kernel"):
        saved(tmp_path, bad)
    assert checkpoint.resolve(tmp_path) == old
    assert not list(tmp_path.glob(".writing-*"))


def test_invalid_folders(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="--save_checkpoint_path .* cannot be written"):
        Folder(tmp_path / "file/model").acquire()
    path = saved(tmp_path / "model")
    with pytest.raises(ValueError, match="is itself a checkpoint, not a folder of checkpoints"):
        Folder(path).acquire()


def test_folder_that_is_not_shared(tmp_path, monkeypatch):
    """Seen from rank 1 of 2, on a machine of its own."""
    monkeypatch.setattr("runtime.checkpoint.lock._SEEN_AFTER_S", 0.3)
    chiefs, ours = Folder(tmp_path / "chiefs"), Folder(tmp_path / "ours")
    for each in (chiefs, ours):
        each.acquire()
    word = chiefs.lock.token
    assert chiefs.lock.sees(word) and not ours.lock.sees(word)
    assert not Folder(tmp_path / "nowhere").lock.sees(word)

    class Second(World):
        def gather_objects(self, value, name="objects"):
            start = [str(self.folder.root), None, False, False]
            return [{"checkpoint.start": start, "checkpoint.mark": word}.get(name), value]

    request = Request(save=str(ours.root))
    world = Second(1, 2)
    object.__setattr__(world, "folder", chiefs)
    assert find(request, world, 60.0).folder.root == chiefs.root
    object.__setattr__(world, "folder", ours)
    with pytest.raises(
        CollectiveError, match="rank 1: --save_checkpoint_path .*ours on .* not the fol"
    ):
        find(request, world, 60.0)


def test_lock_of_a_killed_process(tmp_path, root):
    for name in (".deleting-00001-step-1", ".deleting-notes"):
        (tmp_path / name).mkdir()
    program = (
        "import sys, time; from runtime.checkpoint import Folder; Folder(sys.argv[1]).acquire(); "
        "print(flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, tmp_path]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"\n"
    (tmp_path / ".writing-00003-step-9").mkdir()
    threading.Timer(0.5, process.kill).start()
    mine = Folder(tmp_path)
    mine.acquire()
    process.communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".deleting-notes", ".lock"]
    mine.release()


def test_background_writing(tmp_path, monkeypatch):
    """`save` returns when all is copied out; what changes then is not in the checkpoint."""
    gate = threading.Event()
    original = part_writer.sync_file
    monkeypatch.setattr(part_writer, "sync_file", lambda file: (gate.wait(300), original(file)))
    weights = some_weights(1.0)
    taken = Folder(tmp_path)
    taken.acquire()
    writing = Saver(taken)
    writing.save(5, weights, {}, {"step": 5})
    assert writing.under_way and writing.busy and writing.outcomes() == []
    weights[2].write(0, np.full([5, 3], 8.0, "f"))
    weights[0].write(0, np.full([2, 2], 8.0, "f"))
    assert taken.newest() is None
    gate.set()
    writing.wait()
    (outcome,) = writing.outcomes()
    assert outcome.fault is None and outcome.path == taken.newest().path
    assert outcome.total_s >= outcome.wait_s > 0
    checkpoint.restore(outcome.path, weights)
    assert (value(weights[2]) == 1).all() and (value(weights[0]) == 1).all()
    taken.release()


def test_memory_limit_of_unwritten_blocks(tmp_path, monkeypatch):
    """With a writer that stands still the copying stops at the bound."""
    for module in (files, part_writer):
        monkeypatch.setattr(module, "BLOCK_BYTES", 12288)
    gate, read = threading.Event(), []
    run = Writer.run
    monkeypatch.setattr(Writer, "run", lambda self: (gate.wait(300), run(self)))

    class Counted(TableWeight):
        def read(self, box):
            read.append(box)
            return super().read(box)

    table = whole_table("sparse/t", 102_400, tf.Variable(tf.ones([102_400, 3])), kind=Counted)
    taken = Folder(tmp_path)
    taken.acquire()
    writing = Saver(taken, memory_bytes=10 * 12288)
    thread = threading.Thread(target=writing.save, args=(1, [table], {}, {}))
    thread.start()
    deadline = time.monotonic() + 60
    while len(read) < 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(read) == 9, "the header and eight blocks wait, one has no place"
    assert thread.is_alive()
    gate.set()
    thread.join()
    writing.wait()
    assert len(read) == 100 and writing.outcomes()[0].fault is None
    taken.release()


def test_other_model(tmp_path):
    path = save(tmp_path, some_weights()[:1], {})
    with pytest.raises(ValueError, match=r"another model: it lacks \['dense.scalars/power', 'spa"):
        checkpoint.restore(path, some_weights())
    path = saved(tmp_path)
    with pytest.raises(ValueError, match=r"sparse/cat is float32 \[5, 3\], the model needs float3"):
        checkpoint.restore(path, some_weights(rows=6))


def test_other_features(tmp_path):
    path = saved(tmp_path)
    ours = [VariableWeight(f"sparse/f{i}", tf.Variable([1.0])) for i in range(26)]
    with pytest.raises(ValueError, match=r"training, cat, got f0, .*\(26 in all\).*--dataset_path"):
        checkpoint.restore(path, ours)


def test_unknown_format(tmp_path):
    path = saved(tmp_path)
    content = json.loads((path / "checkpoint.json").read_text())
    rest = json.dumps({**content, "format": 99}).encode().split(b",", 1)[1].lstrip()
    data = b'{"checksum": "%s",\n' % files.checksum(rest).encode() + rest
    (path / "checkpoint.json").write_bytes(data)
    with pytest.raises(ValueError, match="has format 99, this version reads 2"):
        checkpoint.describe(path)


def original_layout(folder, tables):
    (folder / "sparse").mkdir(parents=True)
    config = {
        "categorical_cardinalities": [len(t) for t in tables],
        "embedding_dim": [t.shape[1] for t in tables],
    }
    (folder / "sparse/config.json").write_text(json.dumps(config))
    for i, table in enumerate(tables):
        np.save(folder / f"sparse/feature_{i}.npy", table)


@pytest.mark.parametrize("cut", CUTS)
def test_tables_of_the_original_layout(tmp_path, cut):
    _, whole = table_of(0, CUTS[cut])
    original_layout(tmp_path, [whole + 1])
    assert checkpoint.is_original(checkpoint.resolve(tmp_path))
    for rank in range(len(CUTS[cut])):
        table, _ = table_of(rank, CUTS[cut])
        checkpoint.restore(tmp_path, [table])
        for box in table.local_boxes():
            expected = (whole + 1)[box.row : box.row_end, box.column : box.column_end]
            np.testing.assert_array_equal(table.read(box), expected)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "config.json").write_text("{}"), "expected JSON with a list categorical"),
        (lambda p: (p / "feature_0.npy").unlink(), "feature_0.npy cannot be used: No such file"),
        (lambda p: np.save(p / "feature_0.npy", np.ones([7, 4])), r"it is float64 \[7, 4\], the"),
        (lambda p: np.save(p / "feature_0.npy", np.full([7, 4], np.inf, "f")), "not finite in row"),
        (lambda p: (p / "config.json").write_text('{"categorical_cardinalities": [8]}'), "another"),
        (lambda p: os.truncate(p / "feature_0.npy", 200), "mmap length is greater than file size"),
    ],
)
def test_damage_of_the_original_layout(tmp_path, damage, message):
    table, whole = table_of(0, CUTS["one"])
    original_layout(tmp_path, [whole])
    damage(tmp_path / "sparse")
    with pytest.raises(ValueError, match=message):
        checkpoint.restore(tmp_path, [table])


def test_checkpoint_without_index(tmp_path):
    """It is not passed over in silence, and its number is not given again."""
    first, second = saved(tmp_path), saved(tmp_path)
    (second / "checkpoint.json").unlink()
    assert checkpoint.resolve(tmp_path) == second
    with (
        pytest.raises(
            checkpoint.DamagedCheckpoint, match=f"json: No such.* before it is --resume {first}"
        ),
        checkpoint.suggest_previous(second, "--resume"),
    ):
        checkpoint.describe(second)
    assert saved(tmp_path).name == "00003-step-0"


def test_long_feature_names(tmp_path):
    names = ["sparse/" + "ж" * 60 + end for end in "ab"]
    weights = [VariableWeight(name, tf.Variable([float(i)])) for i, name in enumerate(names)]
    path = save(tmp_path, weights, {})
    for some in weights:
        some.variable.assign([9.0])
    checkpoint.restore(path, weights)
    assert [float(some.variable[0]) for some in weights] == [0.0, 1.0]


def test_straggler_barrier(monkeypatch):
    """Ranks look in about once a second: no time-out counts the whole wait."""
    now, done = [100], threading.Event()
    monkeypatch.setattr("runtime.cluster.heartbeat.time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(world):
        with StragglerBarrier(world, "work", interval_s=5) as meeting:
            for _ in range(30 * world.rank):
                now[0] += 1
                meeting.keepalive()
            if world.rank:
                done.set()
        return done.is_set(), len(world.calls)

    # After 6, 12, ... 30 seconds; the last one is that of leaving.
    assert run_threads(2, work) == [(True, 6), (True, 6)]


def test_best_checkpoint(tmp_path):
    taken = Folder(tmp_path)
    taken.acquire()
    saver = Saver(taken, keep=2)
    for step, best in ((1, True), (2, True), (3, False), (4, False), (5, False)):
        saver.save(step, some_weights(float(step)), {}, {}, best)
        saver.wait()
    assert [saved.step for saved in taken.list()] == [2, 4, 5]
    assert os.readlink(tmp_path / "best") == "00002-step-2"
    assert checkpoint.resolve(tmp_path / "best") == tmp_path / "best"
    assert checkpoint.resolve(tmp_path).name == "00005-step-5"
    result = some_weights(0.0)
    checkpoint.restore(tmp_path / "best", result)
    assert result[1].variable.numpy() == 2.0
    saver.save(6, some_weights(6.0), {}, {}, best=True)
    saver.wait()
    assert [saved.step for saved in taken.list()] == [5, 6], "the old best is like the others"
    # Killed between the link and its name: the next training clears up.
    taken.release()
    os.symlink("00005-step-5", tmp_path / ".writing-best.0123")
    again = Folder(tmp_path)
    again.acquire()
    assert sorted(p.name for p in tmp_path.iterdir() if "best" in p.name) == ["best"]
    assert [saved.step for saved in again.list()] == [5, 6]
    # A training that resumes at another step sets the best one, which is not an abandoned one.
    again.set_best(5)
    assert os.readlink(tmp_path / "best") == "00005-step-5"
    again.abandon_newer_than(tmp_path / "00005-step-5")
    again.set_best(6)
    assert not (tmp_path / "best").exists()
    # Something else has the name: the checkpoint is saved all the same.
    (tmp_path / "best").mkdir()
    saver = Saver(again, keep=2)
    saver.save(7, some_weights(7.0), {}, {}, best=True)
    saver.wait()
    (outcome,) = saver.outcomes()
    assert outcome.fault is None and "the link best to it could not be made" in outcome.note
    assert again.newest().step == 7 and not list(tmp_path.glob(".writing-*"))
    again.release()


def test_write_of_some_columns(tmp_path):
    table, whole = table_of(0, CUTS["one"])
    table.write(0, whole)
    table.write(2, np.full([3, 2], -1.0, "f"), column=1)
    whole[2:5, 1:3] = -1
    np.testing.assert_array_equal(table.local[0].variable, whole)
    np.testing.assert_array_equal(table.read(Box(1, 3, 1, 3)), whole[1:3, 1:3])
    with pytest.raises(ValueError, match="is not on rank 0"):
        table_of(0, CUTS["rows"])[0].read(Box(3, 4, 0, 4))


def test_heartbeat_pace():
    def train(world):
        now = [0.0]
        beat = Heartbeat(world, interval_s=2.0, clock=lambda: now[0])
        result = []
        for step in range(400):
            now[0] += 0.1 if step < 200 else 0.01
            if (facts := beat(lambda step=step: [world.rank == 1 and step >= 250])) is not None:
                result.append((step, facts[0]))
        return result

    first, second = run_threads(2, train)
    assert first == second
    steps = [step for step, _ in first]
    gaps = np.diff([step for step in steps if 50 < step < 200])
    assert (abs(gaps - 20) <= 1).all(), "every two seconds of steps of 0.1 s"
    assert next(fact for step, fact in first if step >= 250)
    assert not any(fact for step, fact in first if step < 250)
