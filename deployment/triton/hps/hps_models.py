"""Models of the backend `hps`: keys of a request, HPS itself, and the dense part after it."""

import os
from pathlib import Path
from typing import Any

from deployment.artifacts.onnx_model import dense_to_onnx
from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving import hps_keys as keys
from deployment.serving.interface import DENSE, KEYS, SPARSE, Interface, ServedTensor
from deployment.triton.config_pbtxt import CONFIG_FILE, model_config, write_config
from deployment.triton.gpu_models import write_onnx
from deployment.triton.hps import hps_files
from deployment.triton.hps.dense_part import DenseAfterHps
from deployment.triton.python_models import write_python_model
from deployment.triton.repository import VERSION

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
        f"--backend-config=hps,ps={served_path}/{hps_files.PS_FILE}, which has all HPS models here"
    )


def write_entry(
    context: DeploymentContext, name: str, folder: Path, interface: Interface
) -> tuple[str, dict[str, Any]]:
    """Writes the tables and their entry of `ps.json`; returns the repository as the server sees
    it, and the entry."""
    options, tables = context.options, context.interface.tables
    served_path = options.served_path or os.path.abspath(options.model_repository)
    hps_files.write_tables(context.trained, tables, folder / str(VERSION), options.fused_embedding)
    entry = hps_files.ps_entry(
        name,
        interface,
        f"{served_path}/{name}/{VERSION}",
        context.on_gpus,
        options.gpu_cache_share or _DEFAULT_CACHE_SHARE,
    )
    hps_files.write_json(entry, folder / hps_files.ENTRY_FILE)
    return served_path, entry


def write_dense(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the dense part with the flat vectors of HPS as its input."""
    file = context.onnx.with_name("after_hps.onnx")
    dense_to_onnx(DenseAfterHps(context.dense, context.interface), file)
    flat = {keys.VECTORS: keys.values_per_row(context.interface)}
    return write_onnx(context, name, folder, file, _dense_inputs(context.interface), flat)
