"""The launcher of this process and its peers, read from environment variables."""

import os
from types import ModuleType
from typing import NamedTuple

# The number of processes, set by horovodrun, Open MPI, MPICH and SLURM's srun.
# The innermost launcher comes first: mpirun within a SLURM job is seen as mpirun.
SIZE_VARIABLES = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


class Launched(NamedTuple):
    """Several processes were started; `variable` is the one that states their number."""

    variable: str
    size: int


def launched() -> Launched | None:
    """Returns the processes of a launcher; None without one, or if it started a single process.

    Raises:
        ValueError: PyTorch's launcher started several processes, which Horovod cannot connect.
    """
    for variable in SIZE_VARIABLES:
        if size := int(os.environ.get(variable) or 0):
            return Launched(variable, size) if size > 1 else None
    torch = [os.environ.get(name) for name in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")]
    if all(torch) and torch[0] != "1":
        raise ValueError(
            f"expected processes of horovodrun, mpirun or srun, got {torch[0]} of torchrun or "
            "torch.distributed.launch (WORLD_SIZE, LOCAL_RANK and MASTER_ADDR are set): each would "
            f"train a model of its own. Start them with `horovodrun --gloo -np {torch[0]}`"
        )
    return None


def uses_mpi(hvd: ModuleType) -> bool:
    """Returns whether Horovod uses MPI: it was built in, and the launcher did not set Gloo."""
    return bool(hvd.mpi_built() and os.environ.get("HOROVOD_CONTROLLER", "mpi").lower() != "gloo")
