"""MLPerf log of a training (`--mlperf_log`): hook of the training loop."""

from __future__ import annotations

import platform
from typing import Any

from config import presets
from config.config import Config
from config.sections.run import MLPERF
from runtime.cluster.distributed import run_on_all_ranks
from runtime.logs.mlperf import MLPerfLog
from training.state import RunContext

# Samples of the training split and of the evaluated half of the last day (MLPerf's Criteo 1TB).
TRAINING_SAMPLES, EVALUATION_SAMPLES = 4_195_197_692, 89_137_319

# Settings that the rules of the closed division leave to a submission.
_FREE = ("batch_size", "valid_batch_size", "learning_rate")


class MLPerfHook:
    """Logs a training as the rules of MLPerf Training require for DLRM-DCNv2.

    The time to train is from `run_start`, before the first sample is read, to `run_stop`. Between
    two evaluations there is a block. A resumed training appends to the file: its interruption
    belongs to the time to train.

    Args:
        run: a run with `--mode train`.
        log: the file; None on all ranks but 0, and without `--mlperf_log`: nothing is logged.
    """

    def __init__(self, run: RunContext, log: MLPerfLog | None):
        self._run, self._log, self._is_training = run, log, False
        if log is not None and not run.position.step:
            self._start_initialization(log)

    def start(self) -> None:
        """Logs the end of the initialization and the start of the training."""
        if self._log is None:
            return
        self._is_training = True
        if not self._run.position.step:
            self._log.end("init_stop")
            self._log.start("run_start")
        self.start_block()

    def start_block(self) -> None:
        """Logs the start of the steps until the next evaluation."""
        if self._log is not None:
            share = 1 / self._run.config.evaluation.evals_per_epoch
            self._log.start("block_start", first_epoch_num=self._epochs(), epoch_count=share)

    def start_evaluation(self) -> None:
        """Logs the end of a block and the start of its evaluation."""
        if self._log is not None:
            self._log.end("block_stop", **self._progress())
            self._log.start("eval_start", **self._progress())

    def end_evaluation(self, auc: float) -> None:
        """Logs the AUC."""
        if self._log is not None:
            self._log.event("eval_accuracy", auc, **self._progress())
            self._log.end("eval_stop", **self._progress())

    def stop(self, is_reached: bool) -> None:
        """Logs the end of a training that is complete, unless it was so before this run."""
        if self._log is not None and self._is_training:
            status = "success" if is_reached else "aborted"
            self._log.end("run_stop", status=status, **self._progress())
            self._log.close()

    def _start_initialization(self, log: MLPerfLog) -> None:
        import psutil

        run = self._run
        # A submission drops the page cache before it starts the processes, and logs that itself.
        log.event("cache_clear", False)
        log.start("init_start", round(1e3 * psutil.Process().create_time()))
        log.event("submission_benchmark", "dlrm_dcnv2")
        log.event("submission_org", run.config.logs.mlperf_organization)
        log.event("submission_division", "closed" if _is_closed(run) else "open")
        log.event("submission_platform", _platform(run))
        log.event("seed", run.config.run.seed)
        for key, value in {**_hyperparameters(run.config), **_sizes(run)}.items():
            log.event(key, value)

    def _epochs(self) -> float:
        position, data = self._run.position, self._run.recipe.train
        assert data is not None
        return position.epoch + position.row / data.num_samples

    def _progress(self) -> dict[str, Any]:
        data = self._run.recipe.train
        assert data is not None
        epochs = self._epochs()
        return {"epoch_num": epochs, "samples_count": round(epochs * data.num_samples)}


def open_hook(run: RunContext) -> MLPerfHook:
    """Opens `--mlperf_log` on rank 0, which the other ranks wait for.

    Raises:
        ValueError, OSError: as of `MLPerfLog`, on all ranks.
    """
    path = run.config.logs.mlperf_log
    if path is None:
        return MLPerfHook(run, None)

    def open_log() -> MLPerfLog | None:
        return MLPerfLog(path, append=run.position.step > 0) if run.world.is_chief else None

    return MLPerfHook(run, run_on_all_ranks(run.world, open_log))


def _hyperparameters(config: Config) -> dict[str, Any]:
    """Returns the hyperparameters under the names of the log."""
    options = config.optimizer
    values: dict[str, Any] = {
        "opt_name": options.optimizer,
        "opt_base_learning_rate": options.learning_rate,
        "opt_weight_decay": options.weight_decay,
        "opt_learning_rate_warmup_steps": options.warmup_steps,
        "opt_learning_rate_decay_start_step": options.decay_start_step,
        "opt_learning_rate_decay_steps": options.decay_steps,
    }
    if "initial_accumulator" in options.options_of(options.optimizer):
        values |= {
            "opt_adagrad_learning_rate_decay": 0.0,
            "opt_adagrad_initial_accumulator_value": options.adagrad_initial_accumulator,
            "opt_adagrad_epsilon": options.epsilon,
        }
    return values


def _sizes(run: RunContext) -> dict[str, int]:
    """Returns batch size and sample counts under the names of the log."""
    train, valid = run.recipe.train, run.recipe.valid
    assert train is not None and valid is not None
    return {
        "global_batch_size": train.batch_size,
        "gradient_accumulation_steps": run.recipe.num_parts,
        "train_samples": train.num_samples,
        "eval_samples": valid.num_samples,
    }


def _is_closed(run: RunContext) -> bool:
    """Returns whether the training has model, hyperparameters, data and target of MLPerf."""
    config, sizes = run.config, _sizes(run)
    settings = presets.choose(config.with_values({"preset": MLPERF}), None, ()).values
    fixed = {name: value for name, value in settings.items() if name not in _FREE}
    target_auc = fixed.pop("auc_threshold")
    table_rate = config.optimizer.embedding_learning_rate
    target = config.evaluation.auc_threshold
    return (
        all(config.value(name) == value for name, value in fixed.items())
        and config.optimizer.sparse_optimizer == fixed["optimizer"]
        and table_rate in (None, config.optimizer.learning_rate)
        and target is not None
        and target >= target_auc
        and config.data.dataset_type != "synthetic"
        and (sizes["train_samples"], sizes["eval_samples"])
        == (TRAINING_SAMPLES, EVALUATION_SAMPLES)
    )


def _platform(run: RunContext) -> str:
    """Returns number and name of the devices."""
    name = f"CPU ({platform.machine()})"
    if run.device.kind == "GPU":
        import tensorflow as tf

        (gpu,) = tf.config.get_visible_devices("GPU")
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
    return f"{run.world.size} x {name}"
