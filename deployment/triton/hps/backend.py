"""Models of the backend `hps`: keys of a request, HPS itself, and the dense part after it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving import hps_keys as keys
from deployment.serving.interface import DENSE, EMBEDDINGS, KEYS, SPARSE, Interface, ServedTensor
from deployment.triton.config import CONFIG_FILE, model_config, write_config
from deployment.triton.gpu_models import write_onnx
from deployment.triton.hps import files
from deployment.triton.python_models import write_python_model
from deployment.triton.repository import VERSION
from runtime.files.disk import write_errors_name

# Flat: its one dimension depends on the request.
VECTORS = ServedTensor(keys.VECTORS, "float32", ())
_DEFAULT_CACHE_SHARE = 0.5


def model_builders() -> tuple[ModelBuilder, ...]:
    """Returns the models of an ensemble, in the order of their calls."""
    return (
        of_role(KEYS, write_keys)._replace(answers=keys.answer_tensors),
        ModelBuilder(SPARSE, keys.request_tensors, lambda _: [VECTORS], write_tables),
        of_role(DENSE, write_dense)._replace(receives=_dense_inputs),
    )


def _dense_inputs(interface: Interface) -> list[ServedTensor]:
    others = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
    return [VECTORS, *others]


def write_keys(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the model that checks requests and computes their keys."""
    interface = context.interface._replace(role=KEYS)
    write_python_model(context, name, folder, interface, keys.answer_tensors(interface))
    return "checks of requests and the keys of their ids, on the CPU"


def write_tables(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the tables, the entry of `ps.json` and Triton's configuration."""
    interface = context.interface
    served_path, _ = write_entry(context, name, folder, interface)
    config = model_config(
        name,
        {"backend": "hps"},
        keys.request_tensors(interface),
        [VECTORS],
        context.batching,
        context.on_gpus,
        # No warm-up: NUMKEYS of zeros would request no keys.
        parameters={  # sizes of buffers
            "slots": str(len(interface.lookups)),
            "cat_feature_num": str(sum(keys.keys_per_row(interface).values())),
            "embedding_vector_size": str(max(table.dim for table in interface.tables)),
        },
    )
    write_config(config, folder / CONFIG_FILE)
    return (
        f"{len(interface.tables)} tables for HPS; start the server with "
        f"--backend-config=hps,ps={served_path}/{files.PS_FILE}, which has all HPS models here"
    )


def write_entry(
    context: DeploymentContext, name: str, folder: Path, interface: Interface
) -> tuple[str, dict[str, Any]]:
    """Writes the tables and their entry of `ps.json`; returns the repository as the server sees
    it, and the entry."""
    options, tables = context.options, context.serving_spec.tables
    served_path = options.served_path or os.path.abspath(options.model_repository)
    files.write_tables(context.trained, tables, folder / str(VERSION), options.fused_embedding)
    entry = files.ps_entry(
        name,
        interface,
        f"{served_path}/{name}/{VERSION}",
        context.on_gpus,
        options.gpu_cache_share or _DEFAULT_CACHE_SHARE,
    )
    files.write_json(entry, folder / files.ENTRY_FILE)
    return served_path, entry


def write_dense(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the dense part with the flat vectors of HPS as its input."""
    file = context.onnx.with_name("after_hps.onnx")
    after_hps(context.onnx, context.interface, file)
    flat = {keys.VECTORS: keys.values_per_row(context.interface)}
    return write_onnx(context, name, folder, file, _dense_inputs(context.interface), flat)


def after_hps(
    dense: Path, interface: Interface, output: Path, flat_inputs: Mapping[str, int] | None = None
) -> None:
    """Writes the dense part with HPS's output in place of `embeddings`.

    `flat_inputs` are its other inputs that become flat, too, with their number of values per row.

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
    flat = helper.make_tensor_value_info(keys.VECTORS, TensorProto.FLOAT, ["values"])
    graph.input.extend([flat, *others])
    builder = _GraphBuilder("hps_vectors")
    builder.add("Concat", *_pooled(builder, interface), output=EMBEDDINGS, axis=1)
    # Nodes must be in topological order.
    dense_nodes = list(graph.node)
    for tensor in graph.input:
        if tensor.name in (flat_inputs or {}):
            shape = builder.constant([-1, flat_inputs[tensor.name]])
            shaped = builder.add("Reshape", tensor.name, shape)
            for node in dense_nodes:
                node.input[:] = [shaped if name == tensor.name else name for name in node.input]
            del tensor.type.tensor_type.shape.dim[1:]
    del graph.node[:]
    graph.node.extend([*builder.nodes, *dense_nodes])
    graph.initializer.extend(builder.initializers)
    onnx.checker.check_model(model)
    with write_errors_name(output):
        onnx.save(model, str(output))


class _GraphBuilder:
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

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes) -> str:
        """Adds a node; returns the name of its output."""
        output = output or f"{self._prefix}/{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


def _pooled(builder: _GraphBuilder, interface: Interface) -> list[str]:
    """Returns names of the vectors [batch, columns] per lookup, in the order of the interface."""
    dims = {table.name: table.dim for table in interface.tables}
    num_values = builder.constant([keys.values_per_row(interface)])
    batch = builder.add("Div", builder.add("Shape", keys.VECTORS), num_values)
    vectors, end_value, start = {}, 0, builder.constant([0])
    for lookup in keys.lookups_by_table(interface):
        count, dim = lookup.count, dims[lookup.table]
        end_value += count * dim
        end = builder.add("Mul", batch, builder.constant([end_value]))
        flat = builder.add("Slice", keys.VECTORS, start, end)
        start = end
        if lookup.combiner == "sum" and count > 1:
            bags = builder.add("Reshape", flat, builder.constant([-1, count, dim]))
            vectors[lookup] = builder.add("ReduceSum", bags, builder.constant([1]), keepdims=0)
        else:
            shape = builder.constant([-1, count * dim])
            vectors[lookup] = builder.add("Reshape", flat, shape)
    return [vectors[lookup] for lookup in interface.lookups]
