"""Which process this is, among how many."""

import os
from dataclasses import dataclass

# Set by horovodrun, Open MPI and SLURM for each process that they start.
_SIZE_VARIABLES = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


@dataclass(frozen=True)
class World:
    """The processes that train together; one process is a world of size 1."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_chief(self) -> bool:
        """True in the one process that writes logs, plots and checkpoints."""
        return self.rank == 0


def connect() -> World:
    """Finds the other processes.

    Raises:
      ValueError: a launcher started several processes. Training on several is not built yet, and
        N processes that each train a model of their own would be worse than none.
    """
    for variable in _SIZE_VARIABLES:
        size = os.environ.get(variable) or "1"
        if size != "1":
            raise ValueError(
                f"started as one of {size} processes ({variable}={size}), but training on several "
                "processes is not available yet: start a single one (horovodrun -np 1, or none)"
            )
    return World()
