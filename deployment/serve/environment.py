"""The serving environment of setup.sh: where it is, and how its programs are started."""

import os
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-serve"


def variables(folder: Path) -> dict[str, str]:
    """What programs of the serving environment need among their environment variables.

    Args:
      folder: `triton` in the serving environment, which setup.sh fills.
    """
    environment = folder.parent
    (libraries,) = environment.glob("lib/python3*/site-packages/nvidia_pytriton.libs")
    changed = {
        # The stub looks for its packages where the first python3 of PATH is.
        "PATH": os.pathsep.join((str(environment / "bin"), os.environ.get("PATH", os.defpath))),
        "LD_LIBRARY_PATH": os.pathsep.join((str(libraries), str(folder / "lib"))),
    }
    # Of whoever starts us: they would show models other packages than those of their environment.
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {k: v for k, v in os.environ.items() if k not in dropped} | changed


def server_program(given: str | Path | None) -> Path:
    """The path of `tritonserver`, with its backends beside it.

    Args:
      given: where it is; None: in `ENVIRONMENT`.

    Raises:
      ValueError: it is not there.
    """
    program = Path(given) if given else ENVIRONMENT / "triton/tritonserver"
    # Not resolved: what belongs to it lies beside the link, not beside the program.
    program = Path(os.path.abspath(program))
    if not program.exists() or not (program.parent / "backends").is_dir():
        raise ValueError(
            f"there is no tritonserver with its backends at {program}: run `make serve-setup`"
            + (", or name its triton/tritonserver with --tritonserver" if given else "")
        )
    return program
