"""Milliseconds of the parts of a training step, from TensorFlow's trace of the real step."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

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
# Those of several ranks, left out where they never ran. nn/embedding/exchange/table_wise.py names
# its
# exchanges; its gather of received vectors and that of their gradients carry TensorFlow's names.
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
OTHER = "loss and the rest"
WAITING = "between operations"

_OPERATION = re.compile(r"[^:]+:\w+|IteratorGetNext\w*::\w+")
# TensorFlow records where an asynchronous operation begins and where it is done.
_ASYNCHRONOUS = "ExecutorState::ProcessAsync::"


class Interval(NamedTuple):
    """One operation at work, in picoseconds.

    Attributes:
        waits: an asynchronous operation under way, which has only the time in which no other runs.
    """

    name: str
    begin: int
    end: int
    waits: bool = False


def part_of(operation: str) -> str:
    """The part that an operation "name:kind" belongs to."""
    for part, pattern in (*PARTS, *EXCHANGE_PARTS, *LAST_PARTS):
        if re.search(pattern, operation):
            return part
    return OTHER


def in_order(parts: Iterable[str]) -> list[str]:
    """Names of parts, in the order of a table."""
    known = [part for part, _ in (*PARTS, *EXCHANGE_PARTS, *LAST_PARTS)]
    return sorted(parts, key=[*known, OTHER, WAITING].index)


def share_out(intervals: Iterable[Interval]) -> dict[str, float]:
    """Picoseconds of each name; operations that run at the same time share that time equally.

    The sum is the time in which anything ran or was waited for.
    """
    edges = []
    for name, begin, end, waits in intervals:
        edges += [(begin, 1, waits, name), (end, -1, waits, name)]
    running: dict[bool, dict[str, int]] = {False: defaultdict(int), True: defaultdict(int)}
    shares: dict[str, float] = defaultdict(float)
    last = 0
    for at, change, waits, name in sorted(edges):
        if at > last:
            at_work = running[False] or running[True]
            for other, times in at_work.items():
                shares[other] += (at - last) * times / sum(at_work.values())
        group = running[waits]
        group[name] += change
        if not group[name]:
            del group[name]
        last = at
    return dict(shares)


def parts_ms(step: Callable[[], object], count: int, folder: str) -> Sequence[tuple[str, float]]:
    """Traces `count` steps; milliseconds of each part a step, adding up to the step's time.

    Args:
        step: does one training step and waits for it.
        count: steps to trace.
        folder: an empty folder for the trace.
    """
    import tensorflow as tf

    step()
    tf.profiler.experimental.start(folder)
    total_ms = timed_ms(lambda: [step() for _ in range(count)]) / count
    tf.profiler.experimental.stop()
    (trace,) = Path(folder).rglob("*.xplane.pb")
    shares = {
        part: ps / 1e9 / count for part, ps in share_out(intervals_of(trace.read_bytes())).items()
    }
    always = {part for part, _ in (*PARTS, *LAST_PARTS)} | {OTHER}
    result = [(part, shares.get(part, 0.0)) for part in in_order(always | shares.keys())]
    return [*result, (WAITING, total_ms - sum(shares.values()))]


def intervals_of(trace: bytes) -> Iterable[Interval]:
    """The operations of a trace, under the names of their parts.

    Args:
        trace: the bytes of an .xplane.pb file.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(trace)
    started, done = {}, {}
    for plane in space.planes:
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
