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
    """Returns the processes of a launcher; None without one, or if it started a single process."""
    for variable in SIZE_VARIABLES:
        if size := int(os.environ.get(variable) or 0):
            return Launched(variable, size) if size > 1 else None
    return None


def uses_mpi(hvd: ModuleType) -> bool:
    """Returns whether Horovod uses MPI: it was built in, and the launcher did not set Gloo."""
    return bool(hvd.mpi_built() and os.environ.get("HOROVOD_CONTROLLER", "mpi").lower() != "gloo")
