"""Models around Merlin's HPS: the keys of a request, HPS itself, the dense part behind it."""

from pathlib import Path

from deployment.deploy.job import Job
from deployment.serving import hps_keys
from deployment.serving.interface import Interface, Tensor
from deployment.triton.config import CONFIG_FILE, VERSION, model_config, write_config
from deployment.triton.gpu_models import write_onnx
from deployment.triton.hps import files
from deployment.triton.hps.dense import behind_hps
from deployment.triton.python_models import write_python_model

# Flat: its one dimension is free.
_VECTORS = Tensor(hps_keys.VECTORS, "float32", ())


def vectors(interface: Interface) -> list[Tensor]:
    """What HPS answers."""
    return [_VECTORS]


def vectors_and_dense_inputs(interface: Interface) -> list[Tensor]:
    """What the dense part receives."""
    beside = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
    return [_VECTORS, *beside]


def write_keys(job: Job, name: str, folder: Path) -> str:
    """Writes the checks, which ask for keys."""
    interface = job.interface._replace(role=hps_keys.ROLE)
    write_python_model(job, name, folder, interface, hps_keys.answered(interface))
    return "checks of requests, and the keys that they ask for, on the CPU"


def write_tables(job: Job, name: str, folder: Path) -> str:
    """Writes HPS's tables, what HPS is to be told of them, and Triton's configuration."""
    interface = job.interface
    files.write_tables(job.trained, job.parts.tables, folder / str(VERSION))
    tables_folder = f"{job.served_path}/{name}/{VERSION}"
    entry = files.ps_entry(name, interface, tables_folder, job.on_gpus, job.cache_share)
    files.write_ps_entry(entry, folder)
    config = model_config(
        name,
        {"backend": "hps"},
        hps_keys.asked(interface),
        vectors(interface),
        job.batching,
        job.on_gpus,
        # No warm-up: zeros for NUMKEYS would ask for nothing.
        parameters=files.backend_parameters(interface),
    )
    write_config(config, folder / CONFIG_FILE)
    return (
        f"{len(interface.tables)} tables for HPS; start the server with "
        f"--backend-config=hps,ps={job.served_path}/{files.PS_FILE}, which has all HPS models here"
    )


def write_dense(job: Job, name: str, folder: Path) -> str:
    """Writes the dense part, which gets HPS's flat vectors."""
    file = job.onnx.with_name("behind_hps.onnx")
    behind_hps(job.onnx, job.interface, file)
    flat = {hps_keys.VECTORS: hps_keys.values_of_a_row(job.interface)}
    return write_onnx(job, name, folder, file, vectors_and_dense_inputs(job.interface), flat)
