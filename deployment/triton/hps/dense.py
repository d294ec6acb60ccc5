"""ONNX graph of the dense part after HPS: orders and pools flat vectors first."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from deployment.artifacts.onnx_lookups import GraphBuilder
from deployment.serving.hps_keys import VECTORS, lookups_by_table, values_per_row
from deployment.serving.interface import EMBEDDINGS, Interface
from runtime.files.atomic import write_errors_name


def after_hps(dense: Path, interface: Interface, output: Path) -> None:
    """Writes the dense part with HPS's output in place of `embeddings`.

    HPS returns the vectors of a lookup of n ids for the whole batch, [batch, n, dim] flat, one
    lookup after the other. With v values per row in total, of which b precede this lookup's, and
    the batch size from the length of the output:

        vectors = reshape(output[batch * b : batch * (b + n * dim)], [batch, n, dim])

    These are summed over n, or concatenated.
    """
    model = onnx.load(str(dense))
    graph = model.graph
    others = [tensor for tensor in graph.input if tensor.name != EMBEDDINGS]
    del graph.input[:]
    flat = helper.make_tensor_value_info(VECTORS, TensorProto.FLOAT, ["values"])
    graph.input.extend([flat, *others])
    builder = GraphBuilder("hps_vectors")
    builder.add("Concat", *_pooled(builder, interface), output=EMBEDDINGS, axis=1)
    # Nodes must be in topological order.
    dense_nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*builder.nodes, *dense_nodes])
    graph.initializer.extend(builder.initializers)
    onnx.checker.check_model(model)
    with write_errors_name(output):
        onnx.save(model, str(output))


def _pooled(builder: GraphBuilder, interface: Interface) -> list[str]:
    """Returns names of the vectors [batch, columns] per lookup, in the order of the interface."""
    dims = {table.name: table.dim for table in interface.tables}
    batch = builder.add(
        "Div", builder.add("Shape", VECTORS), builder.constant([values_per_row(interface)])
    )
    vectors, end_value, start = {}, 0, builder.constant([0])
    for lookup in lookups_by_table(interface):
        count, dim = lookup.count, dims[lookup.table]
        end_value += count * dim
        end = builder.add("Mul", batch, builder.constant([end_value]))
        flat = builder.add("Slice", VECTORS, start, end)
        start = end
        if lookup.combiner == "sum" and count > 1:
            bags = builder.add("Reshape", flat, builder.constant([-1, count, dim]))
            vectors[lookup] = builder.add("ReduceSum", bags, builder.constant([1]), keepdims=0)
        else:
            shape = builder.constant([-1, count * dim])
            vectors[lookup] = builder.add("Reshape", flat, shape)
    return [vectors[lookup] for lookup in interface.lookups]
