"""Milliseconds of the parts of a training step, from TensorFlow's trace of the real step."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.report import table
from benchmarks.harness.worker import timed_ms

# The first pattern that matches "name:kind" of an operation determines its part.
PARTS = (
    ("batch from the iterator", r"IteratorGetNext|:PyFunc$"),
    ("table rows: gather", r":ResourceGather"),
    ("interaction: fused op", r":DotBasedInteract"),
    ("interaction: matrix products", r":\w*BatchMatMul"),
    ("dense layers: forward products, bias, ReLU", r":\w*FusedMatMul|:BiasAdd$|:Relu$"),
    ("dense layers: backward products, bias gradients", r":\w*MatMul|:BiasAddGrad"),
    ("dense layers: ReLU gradients", r":ReluGrad"),
    ("table rows: update", r":ResourceScatter|:Mul$"),
    ("dense weights: update", r":ResourceApply|:AssignAddVariableOp|:AssignSubVariableOp"),
    ("casts", r":(Bitc|C)ast$"),
)
# Those of several ranks, left out where they never ran. distributed_embeddings.exchange.table_wise
# names them; its gather of received vectors and that of their gradients carry TensorFlow's names.
EXCHANGE_PARTS = (
    ("exchange: ids", r"\.(ids|lengths):Horovod"),
    ("exchange: vectors", r"\.(vectors|rows|uncombined\.[\d.]+):Horovod"),
    ("exchange: gradients of vectors", r"\.gradient:HorovodAlltoall"),
    ("exchange: sum of the dense gradients", r":Horovod\w*Allreduce"),
    ("exchange: the rest", r":Horovod"),
    ("vectors: from and to the order of ranks", r"embedding/GatherV2:|^GatherV2_1:"),
    ("rows: duplicates and order", r":(Unique|TopK|Sort|UnsortedSegment|InvertPerm|Where|Search)"),
)
LAST_PARTS = (
    (
        "interaction: triangle, joining and splitting",
        r":(Gather|Slice|StridedSlice|Concat|Transpose|_?Mkl\w*Transpose|Pad|Pack|Split|AddN)",
    ),
)
ALL_PARTS = (*PARTS, *EXCHANGE_PARTS, *LAST_PARTS)
OTHER = "loss and the rest"
WAITING = "between operations"

_OPERATION = re.compile(r"[^:]+:\w+|IteratorGetNext\w*::\w+")
# TensorFlow records where an asynchronous operation begins and where it is done.
_ASYNCHRONOUS = "ExecutorState::ProcessAsync::"


class Interval(NamedTuple):
    """One operation at work, in picoseconds."""

    name: str
    begin: int
    end: int
    # an asynchronous operation under way, which has only the time in which no other runs
    waits: bool = False


def part_of(operation: str) -> str:
    """The part that an operation "name:kind" belongs to."""
    matches = (part for part, pattern in ALL_PARTS if re.search(pattern, operation))
    return next(matches, OTHER)


def in_order(parts: Iterable[str]) -> list[str]:
    """Names of parts, in the order of a table."""
    return sorted(parts, key=[*(part for part, _ in ALL_PARTS), OTHER, WAITING].index)


def parts_table(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Milliseconds of parts by column, and their sums."""
    names = in_order({part for parts in columns.values() for part in parts})
    rows = [(n, *(f"{parts.get(n, 0.0):.1f}" for parts in columns.values())) for n in names]
    rows.append(("sum", *(f"{sum(parts.values()):.1f}" for parts in columns.values())))
    return table(("part", *columns), rows)


def share_out(intervals: Iterable[Interval]) -> dict[str, float]:
    """Picoseconds of each name; operations that run at the same time share that time equally.

    The sum is the time in which anything ran or was waited for.
    """
    edges = []
    for name, begin, end, waits in intervals:
        edges += [(begin, 1, waits, name), (end, -1, waits, name)]
    running: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    shares: dict[str, float] = defaultdict(float)
    last = 0
    for at, change, waits, name in sorted(edges):
        if at > last:
            at_work = +running[False] or +running[True]
            for other, times in at_work.items():
                shares[other] += (at - last) * times / at_work.total()
        running[waits][name] += change
        last = at
    return dict(shares)


def parts_ms(step: Callable[[], object], count: int, folder: str) -> dict[str, float]:
    """Traces `count` steps in an empty folder; milliseconds of each part per step.

    They add up to the step's time: `step` does one training step and waits for it.
    """
    import tensorflow as tf

    step()
    tf.profiler.experimental.start(folder)
    total_ms = timed_ms(lambda: [step() for _ in range(count)]) / count
    tf.profiler.experimental.stop()
    (trace,) = Path(folder).rglob("*.xplane.pb")
    shares = share_out(intervals_of(trace.read_bytes()))
    always = {part for part, _ in (*PARTS, *LAST_PARTS)} | {OTHER}
    ms = {part: shares.get(part, 0.0) / 1e9 / count for part in in_order(always | shares.keys())}
    return {**ms, WAITING: total_ms - sum(ms.values())}


def intervals_of(trace: bytes) -> Iterable[Interval]:
    """The operations of an .xplane.pb file, under the names of their parts."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    started, done = {}, {}
    for plane in xplane_pb2.XSpace.FromString(trace).planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                begin = line.timestamp_ns * 1000 + event.offset_ps
                if _OPERATION.fullmatch(name):
                    yield Interval(part_of(name), begin, begin + event.duration_ps)
                elif name.startswith(_ASYNCHRONOUS):
                    facts = _facts(plane, event)
                    key = facts["name"], facts["kernel_type"], facts["step_id"]
                    (started if name.endswith("Start") else done)[key] = begin
    for key in started.keys() & done.keys():
        name, kind, _ = key
        yield Interval(part_of(f"{name}:{kind}"), started[key], done[key], waits=True)


def _facts(plane, event) -> dict[str, object]:
    """Attributes of an event; repeated texts are stored once, by reference."""
    facts = {}
    for stat in event.stats:
        value = getattr(stat, stat.WhichOneof("value"))
        if stat.WhichOneof("value") == "ref_value":
            value = plane.stat_metadata[value].name
        facts[plane.stat_metadata[stat.metadata_id].name] = value
    return facts
