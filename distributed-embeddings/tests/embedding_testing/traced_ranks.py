"""Collectives of a compiled function after TensorFlow's optimisation, without launching ranks.

Any rank of any world is traced in this process with Horovod's own operations. Horovod is never
initialised, so that they fail at once where the function runs; by then TensorFlow has pruned and
optimised the function and recorded the resulting graph.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.collectives import world as world_module


@dataclass(frozen=True)
class TracedRank(World):
    """One rank of a world that exists while functions are traced only.

    Attributes:
      objects: value of each rank that `gather_objects` returns.
    """

    objects: tuple = ()

    def gather_objects(self, value, name="objects") -> list:
        assert self.objects[self.rank] == value, f"{name}: {value} is not what rank gathers"
        return list(self.objects)

    def all_gather(self, tensor, name: str):
        """Leaves out what `predict` gathers between two calls of its function."""
        return tensor if tf.executing_eagerly() else super().all_gather(tensor, name)


class Collective(NamedTuple):
    """One collective of an optimised function.

    Attributes:
      kind: type of Horovod's operation, with its reduction or root where it has one.
      dtypes: what it carries.
      constant: no input depends on anything but constants, so that TensorFlow may call it while it
        optimises the function.
      after: names of the collectives that complete before it starts.
    """

    kind: str
    dtypes: str
    constant: bool
    after: frozenset[str]


def set_up(monkeypatch, world: World) -> None:
    """Makes `world` the world of the process, with Horovod's operations but not its state."""
    import horovod.tensorflow as hvd

    module = SimpleNamespace(**vars(hvd))
    module.size = lambda: world.size
    module.mpi_built = module.nccl_built = lambda: False
    monkeypatch.setattr(world_module, "horovod_tensorflow", lambda: module)
    monkeypatch.setattr(world_module, "_world", world)


def collectives_of(function: Callable, folder: Path) -> dict[str, Collective]:
    """Runs a function up to its first collective; returns all of its optimised graph by name.

    Args:
      function: calls a `tf.function`.
      folder: for TensorFlow's record.
    """
    tf.summary.trace_on(graph=True)
    try:
        function()
    except tf.errors.FailedPreconditionError as error:
        assert "Horovod" in str(error), error
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        tf.summary.trace_export("step", step=0)
    writer.close()
    result: dict[str, Collective] = {}
    for graph in _optimised_graphs(folder):
        assert not any(_is_collective(n) for f in graph.library.function for n in f.node_def)
        for name, collective in _collectives(graph.node).items():
            assert name not in result, f"two collectives are called {name}"
            result[name] = collective
    return result


def differences(ranks: Sequence[dict[str, Collective]]) -> list[str]:
    """Returns why ranks with these collectives would wait for each other, nothing if not."""
    wrong = []
    for name in sorted({name for rank in ranks for name in rank}):
        missing = [r for r, rank in enumerate(ranks) if name not in rank]
        kinds = {rank[name][:2] for rank in ranks if name in rank}
        constant = [r for r, rank in enumerate(ranks) if name in rank and rank[name].constant]
        if missing:
            wrong.append(f"{name}: not on ranks {missing}")
        if len(kinds) > 1:
            wrong.append(f"{name}: {sorted(kinds)}")
        if constant:
            wrong.append(f"{name}: constant on ranks {constant}")
    earlier: dict[str, set[str]] = {}
    for rank in ranks:
        for name, collective in rank.items():
            earlier.setdefault(name, set()).update(collective.after)
    try:
        TopologicalSorter(earlier).prepare()
    except CycleError as error:
        wrong.append(f"in another order on another rank: {error.args[1]}")
    return wrong


def _optimised_graphs(folder: Path) -> Iterator[tf.compat.v1.GraphDef]:
    for file in folder.iterdir():
        for record in _records(file.read_bytes()):
            for value in tf.compat.v1.Event.FromString(record).summary.value:
                for text in value.tensor.string_val:
                    metadata = tf.compat.v1.RunMetadata.FromString(text)
                    for graphs in metadata.function_graphs:
                        yield graphs.post_optimization_graph


def _records(content: bytes) -> Iterator[bytes]:
    """Yields the records of a TFRecord file: length, its checksum, the bytes, their checksum."""
    place = 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield content[place + 12 : place + 12 + length]
        place += 16 + length


def _is_collective(node) -> bool:
    return node.op.startswith("Horovod") and node.op != "HorovodSize"


def _collectives(nodes) -> dict[str, Collective]:
    by_name = {node.name: node for node in nodes}
    repeats = {node.name for node in nodes if node.op in ("NextIteration", "RefNextIteration")}
    data = {n.name: {_node_of(i) for i in n.input if i[0] != "^"} for n in nodes}
    control = {n.name: {_node_of(i) for i in n.input if i[0] == "^"} for n in nodes}
    both = {name: data[name] | control[name] for name in data}
    before = {
        node.name: {n for n in _ancestors(node.name, both, repeats) if _is_collective(by_name[n])}
        for node in nodes
        if _is_collective(node)
    }
    names: dict[str, str] = {}
    for node in sorted(before, key=lambda node: len(before[node])):
        names[node] = node.rsplit("/", 1)[-1]  # the name by which Horovod pairs it
        earlier = [other for other in names if names[other] == names[node]]
        assert before[node].issuperset(earlier), f"{node} and {earlier[0]} run at the same time"
        names[node] += f" (use {len(earlier)})" if len(earlier) > 1 else ""
    return {
        name: Collective(
            _kind(by_name[node]),
            f"{by_name[node].attr['T'].type} x {by_name[node].attr['num_tensors'].i}",
            {by_name[n].op for n in _ancestors(node, data, repeats) if not data[n]} <= {"Const"},
            frozenset(names[n] for n in before[node] if n != node),
        )
        for node, name in names.items()
    }


def _kind(node) -> str:
    options = [node.attr[key].i for key in ("reduce_op", "root_rank") if key in node.attr]
    return " ".join(map(str, [node.op, *options]))


def _ancestors(name: str, inputs: dict[str, set[str]], repeats: set[str]) -> set[str]:
    """The node and all that come before it, within one iteration of a loop."""
    seen, todo = set(), [name]
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            todo += inputs[name] - repeats
    return seen


def _node_of(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]
