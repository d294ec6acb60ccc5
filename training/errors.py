"""Ends of a run that are not its normal end, and their exit codes."""

# In addition to 0 (done), 1 (a defect, with a traceback), those of `runtime.cli` and
# `distributed.RANK_LOST`.
DIVERGED = 3
STOPPED = 75  # by a signal, with a checkpoint: "temporary failure, try again" of sysexits.h


class TrainingDiverged(Exception):
    """The loss, a score or a weight became infinite or NaN."""


class Stopped(Exception):
    """A signal ended the training after a checkpoint."""
