"""`Recipe`: what a recipe trains, as `build(config, spec, world, device)` composes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runtime.logs.run_logger import LogNames


class Goal(NamedTuple):
    """What tells a good model from a bad one while it is trained; more is better.

    Attributes:
      metric: its name among those that the evaluator yields.
      threshold: at which training stops; None: never.
      flag: name of the flag that says so.
    """

    metric: str = "auc"
    threshold: float | None = None
    flag: str = "auc_threshold"


class Recipe(NamedTuple):
    """What a recipe's `build(config, spec, world, device)` composes.

    Attributes:
      model: the model, all weights made; `weights_to_save()` lists them.
      train: training rows (`num_rows`, `num_batches`, `dataset(epoch)`, and `failure`, what was
        wrong with a row that could not be read); None unless --mode train.
      valid: rows to evaluate on, likewise; None with --evals_per_epoch 0.
      loss: `loss(model, batch) -> (scalar, {name: value})`.
      groups: optimizers with their learning rates, `nn.optim.optimizers.OptimizerGroup`.
      evaluator: `evaluate()` yields (name, value), the goal and "log_loss" among them; `note` says
        what the reader must know of them; `draw(folder, metrics)` returns the files of pictures.
        None without rows to evaluate.
      model_flags: the flags that a checkpoint must remember to build this model again.
      facts: what is worth knowing of model and data, for the log.
      notes: what was chosen other than asked for, a sentence each.
      best_auc: gives the best AUC that any model can reach on `valid`, None where nobody knows.
      loss_parts: of the values that `loss` names, those to report.
      log_names: what the log calls values.
      more_metrics: what `evaluator` yields beside the AUC and the log loss.
      goal: what tells a good model from a bad one.
      rows, accumulate: see `nn.train.trainer.Trainer`.
      starts_from: sets weights of a new training from models of other kinds, on all ranks
        together; returns what the log says of it.
    """

    model: Any
    train: Any
    valid: Any
    loss: Callable
    groups: Sequence
    evaluator: Any
    model_flags: Mapping[str, Any]
    facts: Mapping[str, Any]
    notes: Sequence[str] = ()
    best_auc: Callable[[], float | None] = lambda: None
    loss_parts: Sequence[str] = ()
    log_names: LogNames = LogNames()
    more_metrics: Sequence[str] = ()
    goal: Goal = Goal()
    rows: Callable | None = None
    accumulate: int = 1
    starts_from: Callable[[], str] | None = None
