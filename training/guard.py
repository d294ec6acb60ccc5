"""Failures of a run: divergence, signals and lost ranks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from runtime.checkpoint import NonFiniteWeight
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.cluster import distributed, signals
from runtime.cluster.distributed import RankLost
from training.checkpoints import attached_files
from training.errors import Stopped, TrainingDiverged
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
        options, attached = run.config.checkpoint, attached_files(run.data)
        policy = CheckpointPolicy(options, folder, run.world, run.log, stop_signal, attached)
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
