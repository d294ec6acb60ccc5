"""ONNX graph of the dense part after HPS: orders and pools flat vectors first."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from deployment.serving.hps_keys import VECTORS, lookups_by_table, values_per_row
from deployment.serving.interface import EMBEDDINGS, Interface
from runtime.files.atomic import write_errors_name

# Prefix of the added names, so that none equals one of the dense part's.
_PREFIX = "hps_vectors/"


def after_hps(dense: Path, interface: Interface, output: Path) -> None:
    """Writes the dense part with HPS's output in place of `embeddings`.

    HPS returns the vectors of a lookup of n ids for the whole batch, [batch, n, dim] flat, one
    lookup after the other. With v values per row in total, of which b precede this lookup's, and
    the batch size from the length of the output:

        vectors = reshape(output[batch * b : batch * (b + n * dim)], [batch, n, dim])

    These are summed over n, or concatenated.

    Args:
        dense: ONNX file with an input `embeddings` [batch, width].
        interface: interface of the deployment.
        output: ONNX file to write.

    Raises:
        OSError: the file cannot be written; names the file.
    """
    model = onnx.load(str(dense))
    graph = model.graph
    others = [tensor for tensor in graph.input if tensor.name != EMBEDDINGS]
    del graph.input[:]
    flat = helper.make_tensor_value_info(VECTORS, TensorProto.FLOAT, ["values"])
    graph.input.extend([flat, *others])
    nodes = _GraphNodes(graph)
    nodes.add("Concat", _pooled(nodes, interface), EMBEDDINGS, axis=1)
    # Nodes must be in topological order.
    dense_nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes.added, *dense_nodes])
    onnx.checker.check_model(model)
    with write_errors_name(output):
        onnx.save(model, str(output))


def _pooled(nodes: "_GraphNodes", interface: Interface) -> list[str]:
    """Returns names of the vectors [batch, columns] per lookup, in the order of the interface."""
    dims = {table.name: table.dim for table in interface.tables}
    length = nodes.add("Shape", [VECTORS])
    batch = nodes.add("Div", [length, nodes.constant([values_per_row(interface)])])
    vectors, end_value, start = {}, 0, nodes.constant([0])
    for lookup in lookups_by_table(interface):
        count, dim = lookup.count, dims[lookup.table]
        end_value += count * dim
        end = nodes.add("Mul", [batch, nodes.constant([end_value])])
        flat = nodes.add("Slice", [VECTORS, start, end])
        start = end
        if lookup.combiner == "sum" and count > 1:
            bags = nodes.add("Reshape", [flat, nodes.constant([-1, count, dim])])
            vectors[lookup] = nodes.add("ReduceSum", [bags, nodes.constant([1])], keepdims=0)
        else:
            vectors[lookup] = nodes.add("Reshape", [flat, nodes.constant([-1, count * dim])])
    return [vectors[lookup] for lookup in interface.lookups]


class _GraphNodes:
    """Nodes and constants added to a graph, with unique names."""

    def __init__(self, graph):
        self.added = []
        self._graph = graph

    def constant(self, values: list[int]) -> str:
        """Adds int64 constants; returns their name."""
        name = f"{_PREFIX}constant_{len(self._graph.initializer)}"
        constant = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        self._graph.initializer.append(constant)
        return name

    def add(self, kind: str, inputs: list[str], output: str | None = None, **attributes) -> str:
        """Adds a node; returns the name of its output."""
        name = f"{_PREFIX}{kind}_{len(self.added)}"
        output = output or f"{name}/output"
        self.added.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output
