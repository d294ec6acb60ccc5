"""Models of Triton's Python backend, on the CPU: lookups, dense part, both, or checks alone.

A version folder has a copy of the code that it runs, which stays as it is when this toolkit
changes, like the tables and weights next to it.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import deployment
from deployment.artifacts.table_files import write_tables
from deployment.deploy.model_builder import DeploymentContext
from deployment.deploy.raw_inputs import save_encoder
from deployment.model.served_model import candidates_of
from deployment.serving import checksums
from deployment.serving import interface as interfaces
from deployment.serving.interface import Interface, ServedTensor
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    CPU,
    Instances,
    column_parameters,
    model_config,
    write_config,
)
from deployment.triton.repository import VERSION
from preproc import encoding

_PACKAGE = Path(deployment.__file__).parent
_ENCODING = Path(encoding.__file__).parent
_MEMORY = _PACKAGE.parent / "runtime/hardware/available_memory.py"

# The backend loads it, with the version folder on the module path.
_MODEL_FILE = "model.py"


def write_role(context: DeploymentContext, name: str, folder: Path, role: str) -> str:
    """Writes a model of one of the roles with tables or a dense part; returns a line for the
    report."""
    interface, version = context.interface._replace(role=role), folder / str(VERSION)
    descriptions = []
    if role in interfaces.ROLES_WITH_TABLES:
        (version / interfaces.TABLES_FOLDER).mkdir()
        tables, quantize = context.interface.tables, context.options.quantize_tables
        write_tables(context.trained, tables, version / interfaces.TABLES_FOLDER, quantize)
        descriptions.append(f"{len(tables)} tables that all instances share")
    if role in interfaces.ROLES_WITH_DENSE_PART:
        _copy(context.onnx, version / interfaces.DENSE_FILE)
        library = "onnxruntime" if interface.precision == "fp32" else "OpenVINO"
        descriptions.append(f"the dense part by {library} in {interface.precision}")
    if role == interfaces.RECOMMENDER:
        candidates = candidates_of(context.trained)
        np.save(version / interfaces.CANDIDATES_FILE, candidates)
        descriptions.append(f"the {interface.top} best of {len(candidates):,} items")
    write_python_model(context, name, folder, interface, interfaces.answered(interface))
    return f"{', '.join(descriptions)}, on the CPU"


def write_python_model(
    context: DeploymentContext,
    name: str,
    folder: Path,
    interface: Interface,
    answers: Sequence[ServedTensor],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Writes a model's interface, with its role, code and configuration; other files are there."""
    version = folder / str(VERSION)
    interfaces.write(interface, version)
    for source in serving_files():
        _copy(source, version / source.relative_to(_PACKAGE.parent))
    _copy(_PACKAGE / "serving/triton_model.py", version / _MODEL_FILE)
    is_entry = interface.role != interfaces.DENSE
    if interface.encoder and is_entry:
        save_encoder(version / interfaces.ENCODER_FOLDER, context.trained, context.options)
    checksums.write(version)
    options = context.options
    parameters = {"threads": str(options.threads_per_instance or 0)}
    is_raw = bool(interface.columns) and is_entry
    if is_raw:
        parameters |= column_parameters(interface)
    if options.execution_env:
        parameters["EXECUTION_ENV_PATH"] = options.execution_env
    required = interfaces.received(interface)
    optional = interfaces.optional(interface)
    if is_raw:  # the model itself names the columns that it needs
        required, optional = (), (*required, *interfaces.refused(interface))
    config = model_config(
        name,
        {"backend": "python"},
        [*required, *optional],
        answers,
        context.batching,
        Instances(CPU, options.instances),
        warm_up=() if is_raw else context.warm_up,  # of raw rows, see `ServedModel.warm_up`
        parameters=parameters,
        shapes=shapes,
        optional=[tensor.name for tensor in optional],
    )
    write_config(config, folder / CONFIG_FILE)


def serving_files() -> list[Path]:
    """Returns the files of the code that is copied into models."""
    files = [_PACKAGE / "__init__.py", *sorted((_PACKAGE / "serving").rglob("*.py"))]
    files += [_ENCODING.parent / "__init__.py", *sorted(_ENCODING.glob("*.py"))]
    return [*files, *(folder / "__init__.py" for folder in _MEMORY.parents[:2]), _MEMORY]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
