"""Failures of a run: divergence, signals, lost ranks, and the message and exit code of each."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from distributed_embeddings.collectives import CollectiveError, current

from config.flag import mask_passwords
from runtime.checkpoint import NonFiniteWeight
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.checkpoint.saver import Saver
from runtime.cli import INTERRUPTED, USER_ERROR
from runtime.cluster import distributed, signals
from runtime.cluster.distributed import RankLost
from runtime.files.paths import error_text
from training.checkpoints import attached_files
from training.errors import DIVERGED, STOPPED, Stopped, TrainingDiverged
from training.state import RunContext


@contextlib.contextmanager
def log_failure(run: RunContext) -> Iterator[None]:
    """Logs why a run ended early; `main` prints it.

    Raises:
        ValueError: a sample is invalid.
    """
    try:
        yield
    except TrainingDiverged as error:
        run.log.record(f"training diverged: {error}")
        raise
    except (Stopped, KeyboardInterrupt) as error:
        run.log.record(str(error) or "interrupted")
        raise
    except Exception as error:
        # An invalid sample arrives here as a stack trace of tf.data; the loader stores the reason.
        for dataset in (run.recipe.train, run.recipe.valid):
            if dataset is not None and dataset.failure:
                raise ValueError(dataset.failure) from error
        raise


@contextlib.contextmanager
def handle_failures(run: RunContext) -> Iterator[CheckpointPolicy]:
    """Yields the checkpoint policy of a training, and handles what interrupts the training.

    Raises:
        TrainingDiverged: with the last checkpoint and a remedy in its text.
        Stopped: a signal ended the training.
        RankLost: another rank ended or did not come to a collective.
    """
    stop_signal = signals.StopSignal()
    folder = run.start.folder
    is_caught = folder is not None and run.catches_signals
    with stop_signal if is_caught else contextlib.nullcontext():
        policy = _open_policy(run, stop_signal)
        try:
            yield policy
        except (TrainingDiverged, NonFiniteWeight) as error:
            policy.drain()
            text = str(error)
            if isinstance(error, NonFiniteWeight):
                text = f"the last steps left NaN or infinity in {error}"
            raise TrainingDiverged(
                f"{text}; {policy.last_saved}. Try a smaller --learning_rate or a longer "
                "--warmup_steps"
            ) from None
        except Exception as error:
            if run.world.size == 1:  # with more, the other ranks may not come to this
                policy.drain()
            # While SIGTERM is caught: the launcher may send it in the meantime.
            elif reason := distributed.failure_message(error):
                raise RankLost(reason) from error
            raise
        if policy.interrupted:
            raise _stopped(run, policy)


def _open_policy(run: RunContext, stop_signal: signals.StopSignal) -> CheckpointPolicy:
    flags, folder, saver = run.config.checkpoint, run.start.folder, None
    if folder is not None:
        memory_bytes, attached = flags.checkpoint_memory_mb * 2**20, attached_files(run.data)
        saver = Saver(folder, run.world, flags.keep_checkpoints, memory_bytes, attached)
    return CheckpointPolicy(
        saver,
        run.world,
        run.log,
        stop_signal,
        every_minutes=flags.checkpoint_every_minutes,
        stops_on_error=flags.on_checkpoint_error == "stop",
    )


def _stopped(run: RunContext, policy: CheckpointPolicy) -> Stopped:
    if run.world.size > 1:  # the launcher sends SIGTERM as soon as one of the ranks has ended
        signals.ignore_sigterm()
    root: str | Path = "auto"
    if run.start.folder is not None and not run.config.checkpoint.save_checkpoint_path:
        root = run.start.folder.root
    return Stopped(
        f"stopped by {policy.stopping} at step {run.position.step} of {run.total_steps}; "
        f"{policy.last_saved}. Resume with --resume {root}"
    )


def report_failure(recipe: str, error: BaseException) -> int:
    """Prints the error that ended a run, once for all ranks; returns the exit code.

    A defect of the program is raised again.
    """
    text, code, is_printed = f"error: {error_text(error)}", USER_ERROR, True
    match error:
        case CollectiveError():
            world = current()
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
            is_printed = current().is_chief
        case Stopped():
            text, code, is_printed = str(error), STOPPED, current().is_chief
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
