"""The processes that train together and their collectives (Horovod).

A single process is a world of size 1 and does not need Horovod.
"""

import functools
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow
from distributed_embeddings.collectives.launch import launched, uses_mpi

_world: "World | None" = None


class CollectiveError(ValueError):
    """An error of one or more ranks that every rank raises."""


@dataclass(frozen=True)
class World:
    """The processes that train together; one process is a world of size 1.

    A collective is called by every rank, eagerly in the same order, within a `tf.function` with the
    same `name`s, by which Horovod pairs tensors. A compiled function executes each of its
    collectives on every rank, whether this rank needs the result or not. Gradients end at a
    collective: what the backward pass should do is up to the caller (`tf.custom_gradient`). With
    size 1 the collectives are the identity.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this machine; also the GPU that it uses
    local_size: int = 1

    @property
    def is_chief(self) -> bool:
        """True in the one process that writes logs, plots and checkpoints."""
        return self.rank == 0

    def all_to_all(self, tensor: Any, splits: Any, name: str) -> tuple[Any, Any]:
        """Sends consecutive rows to rank 0, 1, ... and receives theirs.

        Args:
            tensor: [n, ...], float, integer or bool of 8 to 64 bits, bfloat16 too.
            splits: int32 [size], rows for each rank; their sum is n.
            name: letters, digits, `_`, `.` and `-`.

        Returns:
            The rows from rank 0, 1, ... in this order; int32 [size], the number of rows from each.
        """
        import tensorflow as tf

        from distributed_embeddings.collectives import compiled

        name = compiled.numbered(name)
        tensor = tf.stop_gradient(tensor)
        splits = tf.convert_to_tensor(splits, tf.int32)
        tf.debugging.assert_equal(
            tf.reduce_sum(splits),
            tf.shape(tensor)[0],
            f"all_to_all {name!r}: the splits must add up to the number of rows",
        )
        if self.size == 1:
            return tensor, splits
        hvd = horovod_tensorflow()
        if uses_mpi(hvd) and not hvd.nccl_built():
            tf.debugging.assert_less(
                tf.size(tensor, tf.int64),
                tf.constant(2**31, tf.int64),
                f"all_to_all {name!r}: MPI counts elements in 32 bits, which is too few; "
                "start with Gloo (horovodrun --gloo), which can, or take smaller batches",
            )
        if not tf.executing_eagerly():
            splits += compiled.unknown_zero(hvd, self.size)
        received, received_splits = hvd.alltoall(
            compiled.to_wire(tensor), splits, name=name, ignore_name_scope=True
        )
        compiled.keep(received)
        return compiled.from_wire(received, tensor.dtype), received_splits

    def all_reduce(self, tensors: Sequence[Any], op: str, name: str) -> list[Any]:
        """Computes the mean, sum, minimum or maximum over the ranks, element by element.

        Args:
            tensors: the same shapes and dtypes on every rank: 8, 32 or 64 bit integers, 16 to 64
                bit floats. They are sent together, in one message per dtype.
            op: "mean" (floats only), "sum", "min" or "max". bfloat16 is reduced in float32, float16
                in float16.
            name: as in `all_to_all`.
        """
        import tensorflow as tf

        from distributed_embeddings.collectives import compiled

        name = compiled.numbered(name)
        tensors = [tf.stop_gradient(tf.convert_to_tensor(tensor)) for tensor in tensors]
        for tensor in tensors:
            if op == "mean" and not tensor.dtype.is_floating:
                raise ValueError(
                    f"all_reduce {name!r}: the mean of {tensor.dtype.name} would be cut off; "
                    "cast it to a float, or use the sum"
                )
        if self.size == 1:
            return tensors
        hvd = horovod_tensorflow()
        horovod_op = {"mean": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max}[op]
        sent = [tf.cast(t, tf.float32) if t.dtype == tf.bfloat16 else t for t in tensors]
        sent = [compiled.variable_shape(t, hvd, self.size) for t in sent]
        reduced: list[Any] = [None] * len(sent)
        for dtype in sorted({t.dtype.name for t in sent}):
            indices = [i for i, t in enumerate(sent) if t.dtype.name == dtype]
            group = hvd.grouped_allreduce(
                [sent[i] for i in indices],
                op=horovod_op,
                name=f"{name}.{dtype}",
                ignore_name_scope=True,
            )
            compiled.keep(group[0])
            for i, result in zip(indices, group, strict=True):
                result = compiled.fixed_shape(result, tensors[i].shape)
                reduced[i] = tf.cast(result, tensors[i].dtype)
        return reduced

    def all_gather(self, tensor: Any, name: str) -> Any:
        """Returns every rank's rows [n, ...], concatenated on axis 0 in the order of ranks.

        n may differ between ranks. Dtypes and name as in `all_to_all`.
        """
        import tensorflow as tf

        from distributed_embeddings.collectives import compiled

        name = compiled.numbered(name)
        tensor = tf.stop_gradient(tensor)
        if self.size == 1:
            return tensor
        hvd, shape = horovod_tensorflow(), [None, *tensor.shape[1:]]
        gather = functools.partial(hvd.allgather, name=name, ignore_name_scope=True)
        return compiled.run(gather, tensor, shape, hvd, self.size)

    def broadcast(self, tensors: Sequence[Any], name: str, root: int = 0) -> list[Any]:
        """Returns the tensors of rank `root`; all ranks pass the same shapes and dtypes."""
        import tensorflow as tf

        from distributed_embeddings.collectives import compiled

        name = compiled.numbered(name)
        tensors = [tf.stop_gradient(tensor) for tensor in tensors]
        if self.size == 1:
            return tensors
        hvd = horovod_tensorflow()
        options = {"root_rank": root, "ignore_name_scope": True}
        return [
            compiled.run(
                functools.partial(hvd.broadcast, name=f"{name}.{i}", **options),
                *(tensor, tensor.shape, hvd, self.size),
            )
            for i, tensor in enumerate(tensors)
        ]

    def gather_objects(self, value: Any, name: str = "objects") -> list[Any]:
        """Returns every rank's value in the order of ranks; not within a `tf.function`.

        Sent as JSON: a tuple is returned as a list, types unknown to JSON as their `str`.
        """
        import numpy as np

        text = _json(value)
        if self.size == 1:
            return [json.loads(text)]
        # JSON contains no line break, so that one collective carries texts of any lengths.
        sent = np.frombuffer(text.encode() + b"\n", np.uint8)
        received = self.all_gather(sent, name).numpy().tobytes()
        return [json.loads(line) for line in received.split(b"\n")[:-1]]

    def barrier(self, name: str = "barrier") -> None:
        """Waits for all ranks; not within a `tf.function`."""
        if self.size > 1:
            self.all_reduce([0], "sum", name)[0].numpy()

    def check_agreement(self, facts: Mapping[str, Any]) -> None:
        """Checks that all ranks have the same values, for example flags and data sizes.

        Raises:
            CollectiveError: with each key that differs, its values and their ranks.
        """
        digest = hashlib.sha256(_json(facts).encode()).hexdigest()
        if len(set(self.gather_objects(digest, "agreement"))) == 1:
            return
        by_rank = self.gather_objects(facts, "agreement_facts")
        differing = []
        for key in sorted({key for theirs in by_rank for key in theirs}):
            ranks_of = _ranks_by_value(
                [_json(theirs[key]) if key in theirs else "missing" for theirs in by_rank]
            )
            if len(ranks_of) > 1:
                values = ", ".join(f"{v} on {rank_names(ranks)}" for v, ranks in ranks_of.items())
                differing.append(f"{key} is {values}")
        raise CollectiveError(
            f"the {self.size} processes were not given the same: {'; '.join(differing)}. Start "
            "all of them with the same command, on the same data"
        )

    def agree(self, error: str | None) -> None:
        """Ends all ranks with the same error if one of them has one; every rank must call it.

        Raises:
            CollectiveError: the text, with the ranks unless all have the same one.
        """
        ranks_of = _ranks_by_value(self.gather_objects(error, "agree"))
        if len(ranks_of) == 1 and error is not None:
            raise CollectiveError(error)
        ranks_of.pop(None, None)
        if ranks_of:
            raise CollectiveError(
                "; ".join(f"{rank_names(ranks)}: {text}" for text, ranks in ranks_of.items())
            )


def current(initialise: Callable[[ModuleType], None] = lambda hvd: hvd.init()) -> World:
    """Returns the world of this process: that of `set_current`, or else Horovod's.

    Initialises Horovod if a launcher (horovodrun, mpirun, srun) started several processes.

    Args:
        initialise: Function of Horovod's module that does so.

    Raises:
        ValueError: Several processes were started, and Horovod cannot be imported or sees one.
    """
    if _world is not None:
        return _world
    started = launched()
    horovod = sys.modules.get("horovod.tensorflow")
    is_initialised = horovod is not None and horovod.is_initialized()
    if started is None and not is_initialised:
        return World()
    hvd = horovod_tensorflow()
    if not is_initialised:
        initialise(hvd)
    if started is not None and hvd.size() != started.size:
        other = "with the mpirun of the MPI that Horovod was built with"
        if not hvd.mpi_built():
            other = (
                "have MPI built in: install it (Debian: apt-get install libopenmpi-dev "
                "openmpi-bin), then build Horovod again (in the toolkit: `make -B setup`)"
            )
        raise ValueError(
            f"{started.size} processes were started ({started.variable}={started.size}), but "
            f"Horovod sees {hvd.size()}, and each would train a model of its own: start them with "
            f"`horovodrun --gloo -np {started.size} ...`, or {other}"
        )
    return World(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())


def set_current(world: World | None) -> None:
    """Sets the world that `current` returns; None: Horovod's again."""
    global _world
    _world = world


def connected() -> World | None:
    """Returns the world of `set_current`, None without one."""
    return _world


def rank_names(ranks: Sequence[int]) -> str:
    """Returns "rank 3", or "ranks 0, 2, 5"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _ranks_by_value(values: Sequence[Any]) -> dict[Any, list[int]]:
    ranks_of: dict[Any, list[int]] = {}
    for rank, value in enumerate(values):
        ranks_of.setdefault(value, []).append(rank)
    return ranks_of


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
