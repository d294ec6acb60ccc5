"""Errors that end a run: one message for all ranks, and the exit code."""

import os
import sys

from distributed_embeddings.collectives import CollectiveError

from config.masking import mask_passwords
from runtime.cluster import distributed, signals
from runtime.files.paths import error_text
from training.errors import DIVERGED, INTERRUPTED, STOPPED, USER_ERROR, Stopped, TrainingDiverged


def report_failure(recipe: str, error: BaseException) -> int:
    """Prints the error that ended a run, once for all ranks; returns the exit code.

    A defect of the program is raised again.
    """
    text, code, is_printed = f"error: {error_text(error)}", USER_ERROR, True
    match error:
        case CollectiveError():
            world = distributed.current()
            if world.size > 1:
                signals.ignore_sigterm()
            is_printed = world.is_chief
        case BrokenPipeError():  # later output has no reader either
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            text = "error: stdout was closed by its reader (a pipe, such as `| head`); with "
            text += "--rank_logs a run continues without it"
        case ValueError() | OSError():
            pass
        case TrainingDiverged():
            text, code = f"training diverged: {error}", DIVERGED
            is_printed = distributed.current().is_chief
        case Stopped():
            text, code, is_printed = str(error), STOPPED, distributed.current().is_chief
        case KeyboardInterrupt():
            text, code = "interrupted", INTERRUPTED
        case _:
            reason = distributed.failure_message(error)
            if reason is None:
                raise error
            text, code = f"error: {reason}", distributed.RANK_LOST
    if is_printed:
        print(mask_passwords(f"{recipe}: {text}"), file=sys.stderr)
    return code
