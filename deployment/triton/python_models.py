"""Models of Triton's Python backend, on the CPU: look-ups, dense part, all of it, or checks alone.

Their version folder has a copy of the code that they run, which stays what it is when this toolkit
changes, as the tables and weights beside it do.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import deployment
from deployment.artifacts.table_files import write_tables
from deployment.deploy.job import Job, Write
from deployment.serving import interface as interfaces
from deployment.serving.interface import (
    DENSE,
    DENSE_FILE,
    SCORER,
    SPARSE,
    TABLES_FOLDER,
    Interface,
    Tensor,
    answered,
    received,
)
from deployment.triton.config import (
    CONFIG_FILE,
    CPU,
    VERSION,
    Instances,
    model_config,
    write_config,
)
from runtime.files.atomic import write_errors_name

_PACKAGE = Path(deployment.__file__).parent

# The backend loads it, with the version folder on the module path.
_MODEL_FILE = "model.py"
_SERVING_MODEL = "serving/triton_model.py"


def serving(role: str) -> Write:
    """Writes a part of a model, or all of it, by `deployment.serving`."""

    def write(job: Job, name: str, folder: Path) -> str:
        interface, version = job.interface._replace(role=role), folder / str(VERSION)
        said = []
        if role in (SCORER, SPARSE):
            with write_errors_name(version / TABLES_FOLDER):
                (version / TABLES_FOLDER).mkdir()
            tables = job.parts.tables
            write_tables(job.trained, tables, version / TABLES_FOLDER, job.quantize)
            said.append(f"{len(tables)} tables that all instances share")
        if role in (SCORER, DENSE):
            with write_errors_name(version / DENSE_FILE):
                shutil.copyfile(job.onnx, version / DENSE_FILE)
            by = "onnxruntime" if interface.precision == "fp32" else "OpenVINO"
            said.append(f"the dense part by {by} in {interface.precision}")
        write_python_model(job, name, folder, interface, answered(interface))
        return f"{' and '.join(said) or 'checks of requests'}, on the CPU"

    return write


def write_python_model(
    job: Job,
    name: str,
    folder: Path,
    interface: Interface,
    answers: Sequence[Tensor],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Writes a model's interface, code and configuration.

    Args:
      job: the deployment.
      name, folder: of the model.
      interface: of the model, with its role.
      answers: the tensors that it answers.
      shapes: see `model_config`.

    Raises:
      OSError: a file cannot be written; it names the file.
    """
    version = folder / str(VERSION)
    with write_errors_name(version / interfaces.FILE):
        interfaces.write(interface, version)
    _copy_code(version)
    parameters = {"threads": str(job.threads)}
    if job.execution_env:
        parameters["EXECUTION_ENV_PATH"] = job.execution_env
    config = model_config(
        name,
        {"backend": "python"},
        received(interface),
        answers,
        job.batching,
        Instances(CPU, job.instances),
        warm_up=job.warm_up,
        parameters=parameters,
        shapes=shapes,
    )
    write_config(config, folder / CONFIG_FILE)


def _copy_code(version: Path) -> None:
    target = version / _PACKAGE.name
    files = sorted(file.relative_to(_PACKAGE) for file in (_PACKAGE / "serving").glob("*.py"))
    with write_errors_name(target):
        (target / "serving").mkdir(parents=True)
    for file in (Path("__init__.py"), *files):
        _copy(_PACKAGE / file, target / file)
    _copy(_PACKAGE / _SERVING_MODEL, version / _MODEL_FILE)


def _copy(source: Path, target: Path) -> None:
    with write_errors_name(target):
        shutil.copyfile(source, target)
