"""One rank: checks every collective (checks_worker.py), or fails on purpose (test_world.py).

Usage: world_worker.py lonely | late SECONDS | FAILURE RANK eager|graph, where FAILURE is what RANK
does while the others wait for it: stall, end or kill.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from distributed_embeddings.collectives import CollectiveError

from runtime.cluster import distributed
from runtime.cluster.failure import connection

TIMEOUT_S = 5  # for a rank that does not come
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8")


def values(tensor) -> list:
    """Returns Python numbers; NumPy has no bfloat16."""
    import tensorflow as tf

    return tf.cast(tensor, tf.float64).numpy().tolist()


def both_ways(function):
    """A function's result computed eagerly, and then by a graph."""
    import tensorflow as tf

    yield "eager", function()
    yield "graph", tf.function(lambda: function(), autograph=False)()


def check_all_to_all(world):
    """Rank s sends (s + r) % 3 rows to rank r, zero rows among them."""
    import tensorflow as tf

    def rows(sender, receiver):
        return [[100 * sender + 10 * receiver + i] * 2 for i in range((sender + receiver) % 3)]

    ranks = range(world.size)
    splits = [len(rows(world.rank, r)) for r in ranks]
    sent = np.array([row for r in ranks for row in rows(world.rank, r)]).reshape(-1, 2)
    expected = [row for s in ranks for row in rows(s, world.rank)]
    tensors = {dtype: tf.cast(sent, dtype) for dtype in FLOATS + INTEGERS}
    for way, got in both_ways(
        lambda: {d: world.all_to_all(t, splits, f"rows_{d}") for d, t in tensors.items()}
    ):
        for dtype, (received, counts) in got.items():
            assert received.dtype == dtype, (way, dtype)
            assert values(received) == expected, (way, dtype, values(received))
            assert counts.dtype == tf.int32
            assert counts.numpy().tolist() == [len(rows(s, world.rank)) for s in ranks]
    nothing, counts = world.all_to_all(tf.zeros([0, 3, 4]), [0] * world.size, "nothing")
    assert nothing.shape == (0, 3, 4) and counts.numpy().tolist() == [0] * world.size


def check_splits_that_lose_rows(world):
    import tensorflow as tf

    try:
        world.all_to_all(tf.zeros([world.size + 1]), [1] * world.size, "lost")
    except tf.errors.InvalidArgumentError as error:
        assert "splits must add up to the number of rows" in str(error), error
    else:
        raise AssertionError("one row would be lost")


def check_all_reduce(world):
    import tensorflow as tf

    n = world.size
    expected = {"sum": n * (n + 1) / 2, "mean": (n + 1) / 2, "min": 1, "max": n}
    for op, factor in expected.items():
        dtypes = FLOATS if op == "mean" else FLOATS + INTEGERS
        tensors = [tf.cast([[1, 2], [3, 4]], d) * tf.cast(world.rank + 1, d) for d in dtypes]
        tensors += [tf.zeros([0, 5]), tf.constant(world.rank + 1.0)]
        for way, got in both_ways(lambda t=tensors, op=op: world.all_reduce(t, op, "reduced")):
            assert [t.dtype for t in got] == [t.dtype for t in tensors]
            for dtype, tensor in zip(dtypes, got[:-2], strict=True):
                wanted = (np.array([[1, 2], [3, 4]]) * factor).tolist()
                assert values(tensor) == wanted, (way, op, dtype, values(tensor))
            assert got[-2].shape == (0, 5)
            assert float(got[-1]) == factor
    assert world.all_reduce([], "sum", "none") == []


def check_all_gather(world):
    """Rank r has r rows."""
    import tensorflow as tf

    expected = [[s, i] for s in range(world.size) for i in range(s)]
    rows = np.array([[world.rank, i] for i in range(world.rank)]).reshape(-1, 2)
    tensors = {dtype: tf.cast(rows, dtype) for dtype in (*FLOATS, *INTEGERS, "bool")}
    for way, got in both_ways(
        lambda: {d: world.all_gather(t, f"gathered_{d}") for d, t in tensors.items()}
    ):
        for dtype, tensor in got.items():
            wanted = np.array(expected, bool).tolist() if dtype == "bool" else expected
            assert tensor.dtype == dtype and values(tensor) == wanted, (way, dtype)


def check_broadcast(world):
    import tensorflow as tf

    last = world.size - 1
    tensors = [tf.cast([world.rank, 7], dtype) for dtype in FLOATS + INTEGERS]
    tensors += [tf.constant(world.rank), tf.zeros([0])]
    for way, got in both_ways(lambda: world.broadcast(tensors, "sent", root=last)):
        assert [t.dtype for t in got] == [t.dtype for t in tensors]
        actual = [values(t) for t in got]
        assert actual == [[last, 7]] * (len(got) - 2) + [last, []], (way, actual)
    assert values(world.broadcast(tensors, "sent")[0]) == [0, 7]


def check_names_pair_tensors(world):
    """Also where graphs differ between ranks in order, scopes and all else."""
    import tensorflow as tf

    @tf.function
    def two():
        names = ["first", "second"] if world.is_chief else ["second", "first"]
        with tf.name_scope(f"rank{world.rank}"):
            sums = {
                name: world.all_reduce([tf.constant(len(name))], "sum", name)[0] for name in names
            }
        return sums["first"], sums["second"]

    assert [int(s) for s in two()] == [5 * world.size, 6 * world.size]


def check_a_collective_of_constants_is_not_a_constant(world):
    """TensorFlow would call it once, at the first step, and leave it out of all others."""
    import tensorflow as tf

    @tf.function
    def step():
        return world.all_reduce([tf.constant(1.0)], "sum", "ones")[0]

    step()
    assert_all_wait_for_the_last(world, step)


def assert_all_wait_for_the_last(world, meet):
    """No rank leaves the collective `meet` before the last one has come to it.

    The ranks are on one machine, which has one clock.
    """
    if world.rank == world.size - 1:
        time.sleep(0.3)
    came = time.monotonic()
    meet()
    left = time.monotonic()
    times = world.gather_objects([came, left])
    assert max(came for came, _ in times) <= min(left for _, left in times), times


def check_gradients_end(world):
    import tensorflow as tf

    x = tf.Variable([[1.0]] * world.size)
    with tf.GradientTape(persistent=True) as tape:
        results = [
            world.all_to_all(x, [1] * world.size, "a")[0],
            world.all_reduce([x], "sum", "b")[0],
            world.all_gather(x, "c"),
            world.broadcast([x], "d")[0],
        ]
    assert [tape.gradient(y, x) for y in results] == [None] * 4


def check_objects(world):
    theirs = world.gather_objects({"rank": world.rank, "text": "é\u2028\n" * world.rank})
    assert theirs == [{"rank": r, "text": "é\u2028\n" * r} for r in range(world.size)]
    assert world.gather_objects(Path("a")) == ["a"] * world.size


def check_agreement(world):
    world.check_agreement({"rows": 10, "seed": None, "dims": (1, 2)})
    facts = {"batch_size": 64, "rate": 0.1 * min(world.rank, 1)}
    if world.rank == 1:
        facts["extra"] = "x"
    try:
        world.check_agreement(facts)
    except ValueError as error:
        others = "rank 0" if world.size == 2 else "ranks 0, 2"
        rate = "0.0 on rank 0, 0.1 on " + ("rank 1" if world.size == 2 else "ranks 1, 2")
        assert (
            f"the {world.size} processes were not given the same: extra is missing on {others}, "
            f'"x" on rank 1; rate is {rate}. Start all of them with the same command' in str(error)
        ), error
    else:
        raise AssertionError("they do not agree")


def check_agree(world):
    world.agree(None)
    n = world.size
    all_ranks = ", ".join(map(str, range(n)))
    for errors, expected in [
        (["no disk"] * n, "no disk"),
        ([None] * (n - 1) + ["no disk"], f"rank {n - 1}: no disk"),
        (["row 3"] + ["row 4"] * (n - 1), f"rank 0: row 3; rank{'s' * (n > 2)} "),
    ]:
        try:
            world.agree(errors[world.rank])
        except CollectiveError as error:
            assert str(error).startswith(expected), (str(error), all_ranks)
        else:
            raise AssertionError(f"no error of {errors}")


def check_barrier(world):
    assert_all_wait_for_the_last(world, world.barrier)


def collectives() -> dict:
    """Name of a check -> what went wrong."""
    import tensorflow as tf

    world = distributed.connect()
    assert distributed.connect() is world
    # Still possible: connecting has not yet initialised TensorFlow.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    outcomes: dict = {"world": [world.rank, world.size, world.local_rank, world.local_size]}
    for name, check in globals().items():
        if name.startswith("check_"):
            try:
                check(world)
                outcomes[name] = "ok"
            except Exception:
                outcomes[name] = traceback.format_exc()
    return outcomes


def fail(how: str, rank: int, kind: str) -> dict:
    """Returns the message of a survivor on the missing rank."""
    import tensorflow as tf

    connection.SAMPLE_WAIT_S = 60.0  # a slow rank is not a frozen one
    if how == "end":
        connection.REPORT_WAIT_S = 60.0  # no rank is waited for
    # TensorFlow starts here, in its own time: between collectives it would be part of the time-out.
    tf.function(lambda: tf.zeros([1]))()
    world = distributed.connect(timeout_s=TIMEOUT_S)
    world.agree(None)

    def collective():
        return world.all_reduce([tf.constant(1.0)], "sum", "waiting")[0]

    collective = tf.function(collective) if kind == "graph" else collective
    for _ in range(3):
        collective()
    world.barrier()
    if world.rank == rank:
        if how == "stall":
            time.sleep(600)
        if how == "end":
            sys.exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        collective()
    except Exception as error:
        return {"message": distributed.failure_message(error), "after_s": time.monotonic() - start}
    raise AssertionError("the collective did not fail")


def connect_lonely() -> dict:
    try:
        distributed.connect()
    except ValueError as error:
        return {"message": str(error)}
    raise AssertionError("ranks that cannot see each other have connected")


def connect_late(seconds: float) -> dict:
    if os.environ["HOROVOD_RANK"] == "1":
        time.sleep(seconds)
    distributed.connect(start_timeout_s=2)
    raise AssertionError("connected without rank 1")


def main(command: str, *args: str) -> None:
    if command == "lonely":
        result = connect_lonely()
    elif command == "late":
        result = connect_late(float(args[0]))
    else:
        result = fail(command, int(args[0]), args[1])
    rank = os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    folder = Path(os.environ["RANK_RESULTS"])
    (folder / f"{rank}.part").write_text(json.dumps(result))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    if "after_s" in result:
        wait_for_survivors(folder, int(args[0]))
        sys.exit(2)  # as a recipe does; then the launcher ends those that are stuck


def wait_for_survivors(folder: Path, missing: int) -> None:
    """Until all but one rank have written; the launcher ends the others when the first one ends."""
    survivors = set(range(distributed.current().size)) - {missing}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all((folder / f"{rank}.json").exists() for rank in survivors):
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
