"""Lookups as an ONNX graph: from the tensors of a request to the vectors of its ids."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deployment.artifacts.table_files import INT8, STORED_AS
from deployment.model.serving_spec import ServingSpec
from deployment.serving.interface import EMBEDDINGS, SCORES, ServedLookup, id_limits


class GraphBuilder:
    """Nodes and constants of a graph, whose unique names start with a prefix."""

    def __init__(self, prefix: str):
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._prefix = prefix

    def constant(self, value) -> str:
        """Adds a constant; returns its name."""
        name = f"{self._prefix}/constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(
        self,
        kind: str,
        *inputs: str,
        output: str | None = None,
        name: str | None = None,
        **attributes,
    ) -> str:
        """Adds a node; returns the name of its output."""
        output = output or f"{self._prefix}/{kind}_{len(self.nodes)}"
        node = helper.make_node(kind, inputs, [output], name=name or output, **attributes)
        self.nodes.append(node)
        return output


class LookupGraph(GraphBuilder):
    """Nodes and tables before a dense model.

    Rows are gathered, widened to float32, multiplied with their scales, and summed or concatenated.
    ONNX counts a negative index from the end of a table: -1 would be its last row. So ids of -1
    that mean "no id" become 0 and their vectors zeros, and other negative ids one past the last
    row, which the runtime refuses like all ids that are too large.

    Tables are in the file `location` next to the model, each tensor aligned to `alignment` bytes.
    `offsets` has the offsets of rows and scales (or None) by table, `size_bytes` the size.
    """

    def __init__(self, serving_spec: ServingSpec, quantize: str, location: str, alignment: int):
        super().__init__("lookups")
        self._serving_spec, self._quantize = serving_spec, quantize
        self._location, self._alignment = location, alignment
        self.offsets: dict[str, tuple[int, int | None]] = {}
        self.size_bytes = 0
        for name, rows, dim in serving_spec.tables:
            values = self._external(f"table/{name}", STORED_AS[quantize], [rows, dim])
            scales = None
            if quantize == INT8:
                scales = self._external(f"scales/{name}", "float32", [rows])
            self.offsets[name] = values, scales
        inputs = dict.fromkeys(lookup.input for lookup in serving_spec.lookups)
        indices = {name: self._indices(name) for name in inputs}
        vectors = [self._vectors(each, *indices[each.input]) for each in serving_spec.lookups]
        if vectors:
            self.add("Concat", *vectors, output=EMBEDDINGS, axis=1)

    def in_front_of(self, dense: onnx.ModelProto) -> onnx.ModelProto:
        """Returns the whole model: lookups and request are the inputs of the dense part."""
        whole = onnx.ModelProto()
        whole.CopyFrom(dense)
        graph = whole.graph
        dense_nodes = list(graph.node)
        del graph.node[:], graph.input[:]
        graph.input.extend(
            helper.make_tensor_value_info(t.name, _onnx_type(t.dtype), ["batch", *t.dims])
            for t in self._serving_spec.inputs
        )
        allowed = self._allowed_rows()
        num_before = len(self.nodes)
        if allowed:
            unchecked = f"{SCORES}/unchecked"
            for node in dense_nodes:
                node.output[:] = [unchecked if name == SCORES else name for name in node.output]
            nan = self.constant(np.float32(np.nan))
            self.add("Where", allowed, unchecked, nan, output=SCORES)
        graph.node.extend([*self.nodes[:num_before], *dense_nodes, *self.nodes[num_before:]])
        graph.initializer.extend(self.initializers)
        return whole

    def _allowed_rows(self) -> str | None:
        """Adds the rules that no lookup checks; returns bool [batch, 1], None without rules."""
        numerical = {f.input for f in self._serving_spec.features if f.cardinality is None}
        rules = [self._finite(name) for name in sorted(numerical)]
        rules += [self._right_aligned(name) for name in self._serving_spec.histories]
        allowed = rules[0] if rules else None
        for rule in rules[1:]:
            allowed = self.add("And", allowed, rule)
        return allowed

    def _finite(self, name: str) -> str:
        """Returns bool [batch, 1]: all numerical features of a row are finite."""
        # Element by element, because onnxruntime's ReduceMax ignores NaN.
        finite = self.add("Less", self.add("Abs", name), self.constant(np.float32(np.inf)))
        finite = self.add("Cast", finite, to=TensorProto.INT32)
        least = self.add("ReduceMin", finite, axes=[1], keepdims=1)
        return self.add("Greater", least, self.constant(np.int32(0)))

    def _right_aligned(self, name: str) -> str:
        """Returns bool [batch, 1]: zeros are padding, at the start, at the same steps of all
        histories."""
        tensor = self._serving_spec.tensor(name)
        padding = self.add("Equal", name, self.constant(np.zeros([], tensor.dtype)))
        first_history = self._slice(padding, 0, 1, axis=1)
        # The first step has no step before it.
        first_step = self._slice(padding, 0, 1, axis=2)
        but_last_step = self._slice(padding, 0, tensor.dims[1] - 1, axis=2)
        before = self.add("Concat", first_step, but_last_step, axis=2)
        after_id = self.add("And", padding, self.add("Not", before))
        bad = self.add("Or", after_id, self.add("Xor", padding, first_history))
        bad = self.add("Cast", bad, to=TensorProto.INT32)
        bad = self.add("ReduceMax", bad, axes=[2], keepdims=0)
        bad = self.add("ReduceMax", bad, axes=[1], keepdims=1)
        return self.add("Equal", bad, self.constant(np.int32(0)))

    def _slice(self, values: str, start: int, stop: int, axis: int) -> str:
        return self.add("Slice", values, *(self.constant([n]) for n in (start, stop, axis)))

    def _indices(self, name: str) -> tuple[str, str]:
        """Returns rows to gather, int64, and whether ids exist, bool, both [batch, columns]."""
        tensor = self._serving_spec.tensor(name)
        least, beyond = id_limits(self._serving_spec.features, tensor)
        shape = self.constant([0, math.prod(tensor.dims)])  # 0: the batch, as it is
        ids = self.add("Cast", self.add("Reshape", name, shape), to=TensorProto.INT64)
        zero = self.constant(0)
        there = self.add("GreaterOrEqual", ids, zero)
        allowed = self.add("GreaterOrEqual", ids, self.constant(least))
        rows = self.add("Where", there, ids, zero)
        return self.add("Where", allowed, rows, self.constant(beyond)), there

    def _vectors(self, lookup: ServedLookup, rows: str, there: str) -> str:
        """Returns the vectors of a lookup, [batch, dim] or [batch, count * dim]."""
        columns = lookup.start, lookup.start + lookup.count, 1
        ids = self._slice(rows, *columns)
        feature = self._serving_spec.feature_of(lookup)
        # The runtime's errors contain the name of the node.
        label = f"ids of {feature.name} in [0, {feature.cardinality}), table {lookup.table}"
        vectors = self.add("Gather", f"table/{lookup.table}", ids, name=label)
        if STORED_AS[self._quantize] != "float32":
            vectors = self.add("Cast", vectors, to=TensorProto.FLOAT)
        if self._quantize == INT8:
            scale = self.add("Gather", f"scales/{lookup.table}", ids, name=f"{label}, scales")
            scale = self.add("Unsqueeze", scale, self.constant([2]))
            vectors = self.add("Mul", vectors, scale)
        if feature.padded:
            mask = self.add("Unsqueeze", self._slice(there, *columns), self.constant([2]))
            vectors = self.add("Where", mask, vectors, self.constant(np.float32(0)))
        if lookup.combiner == "sum" and lookup.count > 1:
            return self.add("ReduceSum", vectors, self.constant([1]), keepdims=0)
        dim = next(dim for table, _, dim in self._serving_spec.tables if table == lookup.table)
        return self.add("Reshape", vectors, self.constant([0, lookup.count * dim]))

    def _external(self, name: str, dtype: str, shape: list[int]) -> int:
        """Adds a tensor whose values are in the file; returns their offset."""
        start = -(-self.size_bytes // self._alignment) * self._alignment
        length = math.prod(shape) * np.dtype(dtype).itemsize
        self.size_bytes = start + length
        tensor = TensorProto(name=name, data_type=_onnx_type(dtype), dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._location), ("offset", start), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return start


def _onnx_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
