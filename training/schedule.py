"""Step counts of a training, and the steps after which it reports and evaluates."""

from config import Config
from recipes.recipe import Dataset
from runtime.logs.run_logger import RunLogger


def count_steps(config: Config, num_batches: int) -> int:
    """Returns the steps of the whole training, or of its benchmark with `--benchmark`."""
    run, evaluation = config.run, config.evaluation
    steps = run.epochs * num_batches
    if evaluation.benchmark:
        measured = evaluation.benchmark_steps or max(1, steps - evaluation.warmup_batches)
        return evaluation.warmup_batches + measured
    return steps if run.max_steps == -1 else min(steps, run.max_steps)


def evaluation_batches(num_batches: int, evals_per_epoch: int) -> set[int]:
    """Returns the batches of an epoch (from 1) after which to evaluate.

    They are evenly spaced, and the last batch is one of them.
    """
    evals = min(evals_per_epoch, num_batches)
    return {-(-num_batches * k // evals) for k in range(1, evals + 1)}


def loss_is_due(step: int, print_freq: int) -> bool:
    """Returns whether to read the loss after this step.

    It is read every `print_freq` steps, and before the first of them after 10, 20, 50, 100, 200,
    500, ... steps, which show how a training starts.
    """
    if step >= print_freq:
        return step % print_freq == 0
    return step >= 10 and str(step).rstrip("0") in ("1", "2", "5")


def samples_of_batch(dataset: Dataset, batch: int) -> int:
    """Returns the samples of batch number `batch` (from 0); the last of an epoch may be short."""
    return min(dataset.batch_size, dataset.num_samples - batch * dataset.batch_size)


def note_schedule(config: Config, log: RunLogger, total_steps: int) -> None:
    """Logs a note if the training is too short or too long for its learning rate schedule.

    A benchmark keeps no model, so its schedule does not matter.
    """
    if config.evaluation.benchmark:
        return
    if total_steps < config.optimizer.warmup_steps:
        log.message(
            f"note: {total_steps} steps end within --warmup_steps {config.optimizer.warmup_steps}: "
            "the learning rate never reaches --learning_rate"
        )
    decay_end = config.optimizer.decay_start_step + config.optimizer.decay_steps
    if config.optimizer.decay_steps and total_steps > decay_end:
        log.message(
            f"note: the learning rate is 0 from step {decay_end} of {total_steps} on "
            "(--decay_start_step + --decay_steps)"
        )
