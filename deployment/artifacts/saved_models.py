"""SavedModels of a trained model: its tables alone, or with its dense part.

They need TensorFlow alone: no code of this toolkit and no custom op. The inputs of a signature are
the tensors of a request by name, `embeddings` is between the parts, `scores` the answer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from deployment.artifacts.table_files import INT8, NONE, STORED_AS, served_blocks
from deployment.model.served_model import DenseModel
from deployment.model.trained_model import TrainedModel
from deployment.serving.interface import (
    EMBEDDINGS,
    Interface,
    ServedLookup,
    ServedTensor,
    feature_at,
    id_limits,
)
from runtime.files.disk import write_errors_name

# Devices of tables.
_HOST, _DEVICE = "/device:CPU:0", "/device:GPU:0"


def write_sparse(
    interface: Interface,
    trained: TrainedModel,
    folder: Path,
    on_device: Collection[str] = (),
    quantize: str = NONE,
) -> None:
    """Writes the lookups: the tensors of a request that hold ids -> `embeddings`.

    An id outside of its table, and a 0 in a history that is not padding at its start, are errors
    that name the feature. Needs memory for all tables, of which every block is verified. Those of
    `on_device` are on the GPU, the others in host memory.

    Raises:
        DamagedCheckpoint, ValueError, OSError: see `deployment.artifacts.table_files.write_tables`.
    """
    tables = _VariableTables(interface, trained, on_device, quantize)
    read = {lookup.input for lookup in interface.lookups}
    inputs = [tensor for tensor in interface.inputs if tensor.name in read]

    def serve(*tensors):
        named = _checked(interface, _by_name(inputs, tensors))
        return {EMBEDDINGS: tables.lookup(named)}

    _save(tables, serve, _signature(inputs), folder, tables.placed)


def write_monolithic(
    dense: DenseModel,
    interface: Interface,
    trained: TrainedModel,
    folder: Path,
    on_device: Collection[str] = (),
    quantize: str = NONE,
) -> None:
    """Writes all of a model as one: the tensors of a request -> `dense.output`.

    See `write_sparse`; a numerical value that is not finite is an error, too.
    """
    whole = tf.Module(name="whole")
    whole.tables, whole.dense = _VariableTables(interface, trained, on_device, quantize), dense

    def serve(*tensors):
        named = _checked(interface, _by_name(interface.inputs, tensors))
        inputs = [named[name] for name in interface.dense_inputs]
        if interface.width:
            inputs.insert(0, whole.tables.lookup(named))
        return _score(dense, inputs)

    _save(whole, serve, _signature(interface.inputs), folder, whole.tables.placed)


def write_dense(dense: DenseModel, folder: Path, is_flat: bool = True) -> None:
    """Writes the dense part alone: its inputs, with `is_flat` flat per row -> `dense.output`."""
    signature = dense.score.input_signature
    if is_flat:
        signature = [
            tf.TensorSpec([None, int(np.prod(spec.shape[1:]))], spec.dtype, spec.name)
            for spec in signature
        ]
    _save(dense, lambda *tensors: _score(dense, tensors), signature, folder, {})


def _score(dense: DenseModel, tensors: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the answer of the dense part to its inputs, which may be flat per row or whole."""
    signature = dense.score.input_signature
    shaped = [
        tf.reshape(tensor, [-1, *spec.shape[1:]])
        for tensor, spec in zip(tensors, signature, strict=True)
    ]
    return {dense.output: dense.score(*shaped)}


class _VariableTables(tf.Module):
    """Tables as variables `values` and `scales` (of int8) by table name, filled block by block.

    `placed` has the device by variable name.
    """

    def __init__(
        self,
        interface: Interface,
        trained: TrainedModel,
        on_device: Collection[str],
        quantize: str,
    ):
        super().__init__(name="tables")
        self._lookups = interface.lookups
        self._device = {t.name: _DEVICE if t.name in on_device else _HOST for t in interface.tables}
        self.values, self.scales, self.placed = {}, {}, {}
        for number, (name, rows, dim, *_) in enumerate(interface.tables):
            # Numbered, because table names are free text.
            kept = [(self.values, f"table_{number}", [rows, dim], STORED_AS[quantize])]
            if quantize == INT8:
                kept.append((self.scales, f"table_{number}_scales", [rows], "float32"))
            for variables, variable_name, shape, dtype in kept:
                self.placed[variable_name] = self._device[name]
                with tf.device(_HOST):  # while writing; `_finish` sets the serving device
                    variables[name] = tf.Variable(
                        tf.zeros(shape, dtype), trainable=False, name=variable_name
                    )
            for first, block, scales in served_blocks(trained, name, quantize):
                places = tf.range(first, first + len(block), dtype=tf.int64)
                self.values[name].scatter_update(tf.IndexedSlices(block, places))
                if scales is not None:
                    self.scales[name].scatter_update(tf.IndexedSlices(scales, places))

    def lookup(self, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the embeddings float32 [batch, width] of checked tensors."""
        vectors = []
        for lookup in self._lookups:
            with tf.device(self._device[lookup.table]):
                vectors.append(self._vectors(lookup, _columns(tensors[lookup.input])))
        return tf.concat(vectors, axis=1)

    def _vectors(self, lookup: ServedLookup, columns: tf.Tensor) -> tf.Tensor:
        """Returns [batch, dim], or [batch, count * dim] without a combiner; zeros for -1."""
        ids = columns[:, lookup.start : lookup.start + lookup.count]
        there = ids >= 0
        rows = tf.where(there, ids, 0)
        vectors = tf.cast(tf.gather(self.values[lookup.table], rows), tf.float32)
        if lookup.table in self.scales:
            vectors *= tf.gather(self.scales[lookup.table], rows)[:, :, tf.newaxis]
        vectors = tf.where(there[:, :, tf.newaxis], vectors, 0.0)
        if lookup.combiner == "sum":
            return tf.reduce_sum(vectors, axis=1)
        return tf.reshape(vectors, [-1, lookup.count * vectors.shape[2]])


def _checked(interface: Interface, tensors: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the tensors after assertions that each value is allowed.

    They are in the graph because a GPU silently gathers zeros for an id outside of its table.
    """
    checked = {}
    for name, tensor in tensors.items():
        columns = _columns(tensor)
        if tensor.dtype.is_floating:
            rules = [("must be finite, got", ~tf.math.is_finite(columns))]
        else:
            least, end = id_limits(interface.features, interface.tensor(name))
            ids = tf.cast(columns, tf.int64)
            out_of_range = (ids < least) | (ids >= end)
            rules = [("has ids from 0 to its cardinality - 1, got", out_of_range)]
        if name in interface.histories:
            rule = "has zeros only in front, where all histories of the row have them, got"
            rules.append((rule, _columns(_misplaced(tensor))))
        with tf.device(_HOST):
            right = [_assertion(interface, name, columns, *rule) for rule in rules]
        with tf.control_dependencies(right):
            checked[name] = tf.identity(tensor)
    return checked


def _misplaced(histories: tf.Tensor) -> tf.Tensor:
    """Returns bool [batch, features, steps], see `checks.find_misplaced_padding`."""
    padding = tf.equal(histories, 0)
    before = tf.concat([padding[:, :, :1], padding[:, :, :-1]], axis=2)
    return (padding & ~before) | tf.not_equal(padding, padding[:, :1])


def _assertion(
    interface: Interface, tensor_name: str, columns: tf.Tensor, rule: str, bad: tf.Tensor
) -> tf.Operation:
    names = [feature_at(interface.features, tensor_name, n).name for n in range(columns.shape[1])]
    where = tf.where(bad)
    message = [tf.gather(names, where[:, 1]), rule, tf.boolean_mask(columns, bad)]
    message += ["in rows", where[:, 0], "columns", where[:, 1]]
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(bad)), message, summarize=3)


def _columns(tensor: tf.Tensor) -> tf.Tensor:
    """Flattens a tensor to [batch, values per row]."""
    return tf.reshape(tensor, [-1, int(np.prod(tensor.shape[1:]))])


def _by_name(inputs: Collection[ServedTensor], tensors) -> dict[str, tf.Tensor]:
    return dict(zip([tensor.name for tensor in inputs], tensors, strict=True))


def _signature(inputs: Collection[ServedTensor]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None, *tensor.dims], tensor.dtype, tensor.name) for tensor in inputs]


def _save(
    module: tf.Module, serve: Callable, signature, folder: Path, placed: Mapping[str, str]
) -> None:
    """Writes a module, whose `serve` is its only signature, with the devices of its variables."""
    served = tf.function(serve, input_signature=signature, autograph=False)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with write_errors_name(folder):
        tf.saved_model.save(module, str(folder), signatures=served, options=options)
        _finish(folder, placed)


def _finish(folder: Path, placed: Mapping[str, str]) -> None:
    """Sets the devices of variables in a SavedModel, and removes references to gradients.

    TensorFlow stores the devices of the writing machine, which may have no GPU. Storing the
    gradients that our layers define doubles the time of tracing; without them, loading warns of
    each function that refers to them.
    """
    file = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for graph in model.meta_graphs:
        for node in graph.graph_def.node:  # for sessions, as servers have them
            if node.op == "VarHandleOp":
                node.device = placed.get(node.name, "")
        for node in graph.object_graph_def.nodes:  # for tf.saved_model.load
            if node.HasField("variable"):
                node.variable.device = placed.get(node.variable.name, "")
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                node.attr.pop("_gradient_op_type", None)
    file.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink()  # of the file as it was
