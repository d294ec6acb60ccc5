"""The dense part behind HPS: in front of it, in ONNX, flat vectors are put in order and pooled."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from deployment.serving.hps_keys import VECTORS, in_order, values_of_a_row
from deployment.serving.interface import EMBEDDINGS, Interface
from runtime.files.atomic import write_errors_name

# In front of the names of what is added, so that none is one of the dense part's.
_PREFIX = "hps_vectors/"


def behind_hps(dense: Path, interface: Interface, output: Path) -> None:
    """Writes the dense part with HPS's output in place of `embeddings`.

    HPS returns the vectors of a look-up of n ids for the whole batch, [batch, n, dim] flat, one
    look-up behind the other. With v values a row in all, of which b come before this look-up's, and
    the batch from the length of the output:

        part = reshape(output[batch * b : batch * (b + n * dim)], [batch, n, dim])

    which is summed over n, or its n vectors are put side by side.

    Args:
      dense: ONNX file with an input `embeddings` [batch, width].
      interface: of the deployment.
      output: ONNX file that is written.

    Raises:
      OSError: it cannot be written; it names the file.
    """
    model = onnx.load(str(dense))
    graph = model.graph
    others = [tensor for tensor in graph.input if tensor.name != EMBEDDINGS]
    del graph.input[:]
    flat = helper.make_tensor_value_info(VECTORS, TensorProto.FLOAT, ["values"])
    graph.input.extend([flat, *others])
    nodes = _Nodes(graph)
    parts = _pooled(nodes, interface)
    nodes.add("Concat", parts, EMBEDDINGS, axis=1)
    # Nodes are in the order in which they run.
    behind = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes.made, *behind])
    onnx.checker.check_model(model)
    with write_errors_name(output):
        onnx.save(model, str(output))


def _pooled(nodes: "_Nodes", interface: Interface) -> list[str]:
    """Names of the vectors [batch, columns] of each look-up, in the order of the interface."""
    dims = {table.name: table.dim for table in interface.tables}
    length = nodes.add("Shape", [VECTORS])
    batch = nodes.add("Div", [length, nodes.constant([values_of_a_row(interface)])])
    found, before, start = {}, 0, nodes.constant([0])
    for look_up in in_order(interface):
        count, dim = look_up.count, dims[look_up.table]
        before += count * dim
        end = nodes.add("Mul", [batch, nodes.constant([before])])
        flat = nodes.add("Slice", [VECTORS, start, end])
        start = end
        if look_up.combiner == "sum" and count > 1:
            part = nodes.add("Reshape", [flat, nodes.constant([-1, count, dim])])
            found[look_up] = nodes.add("ReduceSum", [part, nodes.constant([1])], keepdims=0)
        else:
            found[look_up] = nodes.add("Reshape", [flat, nodes.constant([-1, count * dim])])
    return [found[look_up] for look_up in interface.lookups]


class _Nodes:
    """Nodes and constants that are added to a graph, with names of their own."""

    def __init__(self, graph):
        self.made = []
        self._graph = graph

    def constant(self, values: list[int]) -> str:
        """Name of int64 constants."""
        name = f"{_PREFIX}constant_{len(self._graph.initializer)}"
        shape = [len(values)]
        constant = helper.make_tensor(name, TensorProto.INT64, shape, values)
        self._graph.initializer.append(constant)
        return name

    def add(self, kind: str, inputs: list[str], output: str | None = None, **attributes) -> str:
        """Adds a node; returns the name of its output."""
        name = f"{_PREFIX}{kind}_{len(self.made)}"
        output = output or f"{name}/output"
        self.made.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output
