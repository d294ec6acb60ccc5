"""Where the milliseconds of a training step go, from TensorFlow's own trace of the real step."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.worker import timed_ms

# The first pattern found in "name:kind" of an operation says what it does.
PARTS = (
    ("batch from the iterator", r"IteratorGetNext"),
    ("table rows: gather", r":ResourceGather"),
    ("interaction: matrix products", r":\w*BatchMatMul"),
    ("dense layers: forward products, bias, ReLU", r":\w*FusedMatMul|:BiasAdd$|:Relu$"),
    ("dense layers: backward products, bias gradients", r":\w*MatMul|:BiasAddGrad"),
    ("dense layers: ReLU gradients", r":ReluGrad"),
    ("table rows: update", r":ResourceScatter|:Mul$"),
    ("dense weights: update", r":ResourceApply|:AssignAddVariableOp|:AssignSubVariableOp"),
    ("casts", r":Cast$"),
    (
        "interaction: triangle, joining and splitting",
        r":(Gather|Slice|StridedSlice|Concat|Transpose|_?Mkl\w*Transpose|Pad|Pack|Split|AddN)",
    ),
)
OTHER = "loss and the rest"
WAITING = "between operations"

_OPERATION = re.compile(r"[^:]+:\w+|IteratorGetNext\w*::\w+")


class Interval(NamedTuple):
    """One operation at work, in picoseconds."""

    name: str
    begin: int
    end: int


def part_of(operation: str) -> str:
    """The part that an operation "name:kind" belongs to."""
    for part, pattern in PARTS:
        if re.search(pattern, operation):
            return part
    return OTHER


def share_out(intervals: Iterable[Interval]) -> dict[str, float]:
    """Picoseconds of each name; operations that run at the same time share that time equally.

    The sum is the time in which anything ran.
    """
    edges = []
    for name, begin, end in intervals:
        edges += [(begin, 1, name), (end, -1, name)]
    running: dict[str, int] = defaultdict(int)
    shares: dict[str, float] = defaultdict(float)
    count, last = 0, 0
    for at, change, name in sorted(edges):
        if count and at > last:
            for other, times in running.items():
                shares[other] += (at - last) * times / count
        running[name] += change
        count += change
        if not running[name]:
            del running[name]
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
    intervals = [
        Interval(part_of(name), begin, end) for name, begin, end in _operations(trace.read_bytes())
    ]
    shares = {part: ps / 1e9 / count for part, ps in share_out(intervals).items()}
    order = [*(part for part, _ in PARTS), OTHER]
    found = [(part, shares.get(part, 0.0)) for part in order]
    return [*found, (WAITING, total_ms - sum(shares.values()))]


def _operations(trace: bytes) -> Iterable[Interval]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(trace)
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if _OPERATION.fullmatch(name):
                    begin = line.timestamp_ns * 1000 + event.offset_ps
                    yield Interval(name, begin, begin + event.duration_ps)
