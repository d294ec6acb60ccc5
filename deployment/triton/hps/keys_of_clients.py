"""HPS models with the tensors of NVIDIA's deployment: clients send keys and receive logits.

A request is one row of Triton's batching, whatever the number of its samples:

    EMB_KEY             int64 [1, keys]                 KEYS of HPS
    EMB_N_KEY           int32 [1, tables]               NUMKEYS of HPS
    numerical_features  float32 [1, samples * values]   row by row
    DENSE_OUTPUT        float32 [samples, 1]            logits

With `--fused_embedding` all tables are one, and a key is a row of it (`hps_keys.fused`). The
configuration of HPS is a file in the folder of the lookup model: `sparse/sparse.json`.
"""

from pathlib import Path

from deployment.artifacts import saved_models
from deployment.artifacts.onnx_model import dense_to_onnx
from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving import hps_keys as keys
from deployment.serving.interface import DENSE, LOGITS, SPARSE, Interface, ServedTensor, answered
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    Batching,
    ModelConfig,
    ensemble_config,
    model_config,
    write_config,
)
from deployment.triton.gpu_models import SAVED_MODEL_FOLDER, SAVED_MODEL_PLATFORM, write_onnx
from deployment.triton.hps import hps_files
from deployment.triton.hps.dense_part import DenseAfterHps
from deployment.triton.hps.hps_models import VECTORS, write_entry
from deployment.triton.repository import VERSION
from deployment.triton.tensorrt import SAVED_MODEL

# Tensors of any length, which is that of the whole request.
_SENT_KEYS = ServedTensor(keys.SENT_KEYS, "int64", (-1,))
_SENT_NUM_KEYS = ServedTensor(keys.SENT_NUM_KEYS, "int32", (-1,))


def model_builders() -> tuple[ModelBuilder, ...]:
    """Returns the models of an ensemble, in the order of their calls."""
    return of_role(SPARSE, write_tables), of_role(DENSE, write_dense)


def write_tables(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the tables, the configuration of HPS and that of Triton."""
    options = context.options
    served_path, entry = write_entry(context, name, folder, _interface(context))
    hps_files.write_json(hps_files.configuration([entry]), folder / f"{name}.json")
    config = model_config(
        name,
        {"backend": "hps"},
        [ServedTensor(keys.KEYS, "int64", (-1,)), ServedTensor(keys.NUM_KEYS, "int32", (-1,))],
        [ServedTensor(keys.VECTORS, "float32", (-1,))],
        Batching(options.max_batch_size, False, 0),
        context.on_gpus,
    )
    write_config(config, folder / CONFIG_FILE)
    merged = " as one" if options.fused_embedding else ""
    return (
        f"{len(context.interface.tables)} tables{merged} for HPS; start the server with "
        f"--backend-config=hps,ps={served_path}/{name}/{name}.json"
    )


def write_dense(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the dense part with flat inputs: the vectors of HPS, and all numerical values."""
    interface = _interface(context)
    values = {
        tensor.name: tensor.dims[0]
        for tensor in interface.inputs
        if tensor.name in interface.dense_inputs
    }
    tensors = [VECTORS, *(ServedTensor(tensor, "float32", ()) for tensor in values)]
    flat = {keys.VECTORS: keys.values_per_row(interface), **values}
    dense = DenseAfterHps(context.dense, interface, is_flat=True)
    if context.options.served_dense_format == SAVED_MODEL:
        saved_models.write_dense(dense, folder / str(VERSION) / SAVED_MODEL_FOLDER, is_flat=False)
        config = model_config(
            name,
            SAVED_MODEL_PLATFORM,
            tensors,
            answered(interface),
            context.batching,
            context.on_gpus,
            warm_up=context.warm_up,
            flat=flat,
        )
        write_config(config, folder / CONFIG_FILE)
        return f"a SavedModel in {context.interface.precision}"
    file = context.onnx.with_name("after_hps.onnx")
    dense_to_onnx(dense, file)
    return write_onnx(context, name, folder, file, tensors, flat)


def ensemble(context: DeploymentContext, sparse: str, dense: str) -> ModelConfig:
    """Returns the configuration of the ensemble of the two models."""
    others = [ServedTensor(name, "float32", (-1,)) for name in context.interface.dense_inputs]
    inner = {name: name for name in context.interface.dense_inputs}
    steps = [
        (
            sparse,
            {keys.KEYS: keys.SENT_KEYS, keys.NUM_KEYS: keys.SENT_NUM_KEYS},
            {keys.VECTORS: keys.VECTORS},
        ),
        (dense, {keys.VECTORS: keys.VECTORS, **inner}, {LOGITS: LOGITS}),
    ]
    return ensemble_config(
        context.name,
        [_SENT_KEYS, _SENT_NUM_KEYS, *others],
        [ServedTensor(LOGITS, "float32", (-1,))],
        steps,
        context.options.max_batch_size,
        {keys.TABLES: keys.FUSED if context.options.fused_embedding else keys.SEPARATE},
    )


def _interface(context: DeploymentContext) -> Interface:
    is_fused = context.options.fused_embedding
    return keys.fused(context.interface) if is_fused else context.interface
