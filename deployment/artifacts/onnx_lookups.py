"""Lookups as an ONNX graph: from the tensors of a request to the vectors of its ids."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deployment.artifacts.table_files import INT8, STORED_AS
from deployment.model.serving_spec import ServingSpec
from deployment.serving.interface import EMBEDDINGS, SCORES, ServedLookup, id_limits


class LookupGraph:
    """Nodes and tables before a dense model.

    Rows are gathered, widened to float32, multiplied with their scales, and summed or concatenated.
    ONNX counts a negative index from the end of a table: -1 would be its last row. So ids of -1
    that mean "no id" become 0 and their vectors zeros, and other negative ids one past the last
    row, which the runtime refuses like all ids that are too large.

    Args:
        serving_spec: specification of the model.
        quantize: storage of tables, `--quantize_tables`.
        location: name of the file of tables, next to the model.
        alignment: alignment of each tensor in that file, in bytes.

    Attributes:
        offsets: by table, offsets of its rows and its scales in that file, in bytes (None without
            scales).
        size_bytes: size of that file.
    """

    def __init__(self, serving_spec: ServingSpec, quantize: str, location: str, alignment: int):
        self._serving_spec, self._quantize = serving_spec, quantize
        self._location, self._alignment = location, alignment
        self._nodes, self._initializers = [], []
        self.offsets: dict[str, tuple[int, int | None]] = {}
        self.size_bytes = 0
        for name, rows, dim in serving_spec.tables:
            values = self._external(_table(name), STORED_AS[quantize], [rows, dim])
            scales = None
            if quantize == INT8:
                scales = self._external(_scales(name), "float32", [rows])
            self.offsets[name] = values, scales
        inputs = dict.fromkeys(lookup.input for lookup in serving_spec.lookups)
        indices = {name: self._indices(name) for name in inputs}
        vectors = [
            self._vectors(number, lookup, *indices[lookup.input])
            for number, lookup in enumerate(serving_spec.lookups)
        ]
        if vectors:
            self._add("Concat", vectors, EMBEDDINGS, axis=1)

    def in_front_of(self, dense: onnx.ModelProto) -> onnx.ModelProto:
        """Returns the whole model: lookups and request are the inputs of the dense part.

        Args:
            dense: model from `embeddings` and tensors of a request to `scores`; not changed.
        """
        whole = onnx.ModelProto()
        whole.CopyFrom(dense)
        graph = whole.graph
        own = list(self._nodes)
        del graph.node[:], graph.input[:]
        graph.input.extend(
            helper.make_tensor_value_info(t.name, _onnx_type(t.dtype), ["batch", *t.dims])
            for t in self._serving_spec.inputs
        )
        allowed = self._allowed_rows()
        renamed = f"{SCORES}/unchecked" if allowed else SCORES
        for node in dense.graph.node:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.output[:] = [renamed if name == SCORES else name for name in node.output]
        if allowed:
            self._add("Where", [allowed, renamed, self._constant(np.float32(np.nan))], SCORES)
        dense_nodes = list(graph.node)
        del graph.node[:]
        graph.node.extend([*own, *dense_nodes, *self._nodes[len(own) :]])
        graph.initializer.extend(self._initializers)
        return whole

    def _allowed_rows(self) -> str | None:
        """Adds the rules that no lookup checks.

        Returns:
            Name of bool [batch, 1], whether a row keeps them; None without rules.
        """
        numerical = {f.input for f in self._serving_spec.features if f.cardinality is None}
        rules = [self._finite(name) for name in sorted(numerical)]
        rules += [self._right_aligned(name) for name in self._serving_spec.histories]
        allowed = rules[0] if rules else None
        for number, rule in enumerate(rules[1:]):
            allowed = self._add("And", [allowed, rule], f"rows/keep_rules_{number}")
        return allowed

    def _finite(self, name: str) -> str:
        """Returns the name of bool [batch, 1]: all numerical features of a row are finite."""
        size = self._add("Abs", [name], "numerical/size")
        infinity = self._constant(np.float32(np.inf))
        # Element by element, because onnxruntime's ReduceMax ignores NaN.
        finite = self._add("Less", [size, infinity], "numerical/finite")
        finite = self._add("Cast", [finite], "numerical/finite_as_number", to=TensorProto.INT32)
        least = self._add("ReduceMin", [finite], "numerical/least", axes=[1], keepdims=1)
        zero = self._constant(np.int32(0))
        return self._add("Greater", [least, zero], "numerical/are_finite")

    def _right_aligned(self, name: str) -> str:
        """Returns the name of bool [batch, 1]: zeros of a row's histories are padding, at the
        start, at the same steps of all."""
        steps = self._serving_spec.tensor(name).dims[1]
        zero = self._constant(np.zeros([], self._serving_spec.tensor(name).dtype))
        padding = self._add("Equal", [name, zero], f"{name}/padding")
        first = self._slice(padding, 0, 1, 1, f"{name}/first_history")
        # The first step has no step before it.
        pieces = [
            self._slice(padding, 0, 1, 2, f"{name}/first_step"),
            self._slice(padding, 0, steps - 1, 2, f"{name}/but_last_step"),
        ]
        before = self._add("Concat", pieces, f"{name}/step_before", axis=2)
        id_before = self._add("Not", [before], f"{name}/id_before")
        after_id = self._add("And", [padding, id_before], f"{name}/after_id")
        differs = self._add("Xor", [padding, first], f"{name}/differs")
        bad = self._add("Or", [after_id, differs], f"{name}/misplaced")
        bad = self._add("Cast", [bad], f"{name}/misplaced_as_number", to=TensorProto.INT32)
        bad = self._add("ReduceMax", [bad], f"{name}/bad_histories", axes=[2], keepdims=0)
        bad = self._add("ReduceMax", [bad], f"{name}/bad_rows", axes=[1], keepdims=1)
        none = self._constant(np.int32(0))
        return self._add("Equal", [bad, none], f"{name}/are_right_aligned")

    def _slice(self, values: str, start: int, stop: int, axis: int, output: str) -> str:
        """Adds a slice from start to stop - 1 on an axis; returns its name."""
        bounds = [self._constant(np.array([value])) for value in (start, stop, axis)]
        return self._add("Slice", [values, *bounds], output)

    def _indices(self, name: str) -> tuple[str, str]:
        """Returns the names of rows to gather, int64 [batch, columns], and of bool
        [batch, columns]: the id exists."""
        tensor = self._serving_spec.tensor(name)
        least, beyond = id_limits(self._serving_spec.features, tensor)
        shape = self._constant(np.array([0, math.prod(tensor.dims)]))  # 0: the batch, as it is
        flat = self._add("Reshape", [name, shape], f"{name}/columns")
        ids = self._add("Cast", [flat], f"{name}/ids", to=TensorProto.INT64)
        zero = self._constant(np.int64(0))
        there = self._add("GreaterOrEqual", [ids, zero], f"{name}/are_there")
        allowed = self._add("GreaterOrEqual", [ids, self._constant(least)], f"{name}/allowed")
        rows = self._add("Where", [there, ids, zero], f"{name}/or_zero")
        rows = self._add("Where", [allowed, rows, self._constant(beyond)], f"{name}/rows")
        return rows, there

    def _vectors(self, number: int, lookup: ServedLookup, rows: str, there: str) -> str:
        """Returns the name of the vectors of a lookup, [batch, dim] or [batch, count * dim]."""
        name = f"lookup_{number}"
        columns = lookup.start, lookup.start + lookup.count, 1
        ids = self._slice(rows, *columns, f"{name}/rows")
        description = _description(self._serving_spec, lookup)
        vectors = self._add(
            "Gather", [_table(lookup.table), ids], f"{name}/stored", node=description
        )
        if STORED_AS[self._quantize] != "float32":
            vectors = self._add("Cast", [vectors], f"{name}/wide", to=TensorProto.FLOAT)
        if self._quantize == INT8:
            scale = self._add(
                "Gather", [_scales(lookup.table), ids], f"{name}/scale", f"{description}, scales"
            )
            last = self._constant(np.array([2]))
            scale = self._add("Unsqueeze", [scale, last], f"{name}/scale_of_row")
            vectors = self._add("Mul", [vectors, scale], f"{name}/scaled")
        if self._serving_spec.feature_of(lookup).padded:
            mask = self._slice(there, *columns, f"{name}/are_there")
            mask = self._add("Unsqueeze", [mask, self._constant(np.array([2]))], f"{name}/mask")
            zero = self._constant(np.float32(0))
            vectors = self._add("Where", [mask, vectors, zero], f"{name}/without_padding")
        if lookup.combiner == "sum" and lookup.count > 1:
            axis = self._constant(np.array([1]))
            return self._add("ReduceSum", [vectors, axis], f"{name}/sum", keepdims=0)
        dim = next(dim for table, _, dim in self._serving_spec.tables if table == lookup.table)
        shape = self._constant(np.array([0, lookup.count * dim]))
        return self._add("Reshape", [vectors, shape], f"{name}/vectors")

    def _external(self, name: str, dtype: str, shape: list[int]) -> int:
        """Adds a tensor whose values are in the file; returns their offset."""
        start = -(-self.size_bytes // self._alignment) * self._alignment
        length = math.prod(shape) * np.dtype(dtype).itemsize
        self.size_bytes = start + length
        tensor = TensorProto(name=name, data_type=_onnx_type(dtype), dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._location), ("offset", start), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self._initializers.append(tensor)
        return start

    def _constant(self, value: np.ndarray | np.generic) -> str:
        """Adds a constant; returns its name."""
        name = f"lookups/constant_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add(self, kind: str, inputs, output: str, node: str | None = None, **attributes) -> str:
        """Adds a node; returns its output."""
        self._nodes.append(helper.make_node(kind, inputs, [output], node or output, **attributes))
        return output


def _table(name: str) -> str:
    return f"table/{name}"


def _scales(name: str) -> str:
    return f"scales/{name}"


def _description(serving_spec: ServingSpec, lookup: ServedLookup) -> str:
    """Returns the name of a lookup's node, which the runtime's errors contain."""
    feature = serving_spec.feature_of(lookup)
    return f"ids of {feature.name} in [0, {feature.cardinality}), table {lookup.table}"


def _onnx_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
