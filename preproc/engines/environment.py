"""The environment of Spark and NVTabular, `.venv-engines` (`make engines`).

They need other versions of pandas and NumPy than the toolkit, so a command that needs them is
started again there.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-engines"
_PACKAGES = {"spark": "pyspark", "nvtabular": "nvtabular"}
_ENTERED = "PREPROC_ENGINES_ENTERED"  # set in processes that `enter` started, against a loop


def python() -> Path:
    """Returns the interpreter of the environment, which may be absent."""
    return ENVIRONMENT / "bin" / "python"


def packages_folder() -> Path | None:
    """Returns the folder of the environment's packages, None where there is no environment."""
    return next(ENVIRONMENT.glob("lib/python3*/site-packages"), None)


def is_installed(*packages: str) -> bool:
    """Returns whether the environment has all packages."""
    folder = packages_folder()
    find = importlib.machinery.PathFinder.find_spec
    return folder is not None and all(find(name, [str(folder)]) for name in packages)


def enter(engine: str, module: str) -> None:
    """Replaces this process by the same command in the environment if only that has the engine.

    Where neither has it, the engine reports what to install.

    Args:
        module: what `python -m` runs; the arguments are those of this process.

    Raises:
        OSError: the interpreter of the environment does not start.
    """
    package = _PACKAGES.get(engine)
    if package is None or importlib.util.find_spec(package):
        return
    if not is_installed(package) or _ENTERED in os.environ:
        return
    # A process of its own would have to pass on signals, and would outlive a killed parent.
    command = [str(python()), "-m", module, *sys.argv[1:]]
    os.execve(command[0], command, {**os.environ, _ENTERED: "1"})


def require_spark(other: str = "duckdb") -> None:
    """Raises ValueError where PySpark is not installed; other: an engine that does not need it."""
    if importlib.util.find_spec("pyspark") is None:
        raise ValueError(
            "--engine spark needs PySpark, which is not installed; install it with `make engines`, "
            f"or use --engine {other}"
        )
