"""Serving environment of setup.sh: its location, and the environment of its programs."""

import os
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-serve"


def variables(folder: Path) -> dict[str, str]:
    """Returns the environment variables for programs of the serving environment.

    Args:
        folder: `triton` in the serving environment, which setup.sh fills.
    """
    environment = folder.parent
    (libraries,) = environment.glob("lib/python3*/site-packages/nvidia_pytriton.libs")
    changed = {
        # The stub takes its packages from the first python3 of PATH.
        "PATH": os.pathsep.join((str(environment / "bin"), os.environ.get("PATH", os.defpath))),
        "LD_LIBRARY_PATH": os.pathsep.join((str(libraries), str(folder / "lib"))),
    }
    # Ours would show models other packages than those of their environment.
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {k: v for k, v in os.environ.items() if k not in dropped} | changed


def server_program(path: str | Path | None) -> Path:
    """Returns the absolute path of `tritonserver`; None: that of `ENVIRONMENT`.

    Raises:
        ValueError: it does not exist.
    """
    program = Path(path) if path else ENVIRONMENT / "triton/tritonserver"
    # Links are not resolved: the backends are next to the link, not next to the program.
    program = Path(os.path.abspath(program))
    if not program.exists() or not (program.parent / "backends").is_dir():
        raise ValueError(
            f"there is no tritonserver with its backends at {program}: run `make serve-setup`"
            + (", or name its triton/tritonserver with --tritonserver" if path else "")
        )
    return program
