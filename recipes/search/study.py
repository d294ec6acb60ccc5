"""Study of a search: its trials in Optuna's storage, in a file of SQLite."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.recipe import Goal
from recipes.search.space import Parameter

_DESCRIPTION = "search"  # user attribute of a study: recipe, flags and space
_FLAGS = "flags"  # user attribute of a complete trial: its complete flags, as a file of flags


class Study:
    """Trials of a search, which are compared by a metric.

    Values are chosen by the tree-structured Parzen estimator (Bergstra et al., 2011). A trial is
    pruned when its best metric so far is below the median of the others at that evaluation.

    Args:
        name: name of the study in the file.
        file: file of SQLite, which is created. Its earlier trials count.
        description: what the search consists of; equal in all runs of it.
        goal: the metric.
        earlier: what the description of an older study lacks.

    Raises:
        ValueError: the package is not installed, the file cannot be used, or the study in it is
            another search.
    """

    def __init__(
        self,
        name: str,
        file: Path,
        parameters: Sequence[Parameter],
        description: Mapping[str, Any],
        goal: Goal,
        earlier: Mapping[str, Any],
    ):
        try:
            import optuna
        except ImportError:
            raise ValueError(
                "a search needs the package optuna, which is not installed: install it (pip "
                "install optuna)"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._parameters, self._states, self._goal = parameters, optuna.trial.TrialState, goal
        try:
            self._study = optuna.create_study(
                storage=f"sqlite:///{file.resolve()}",
                study_name=name,
                direction="minimize" if goal.lower_is_better else "maximize",
                load_if_exists=True,
                sampler=optuna.samplers.TPESampler(multivariate=True, constant_liar=True),
                pruner=optuna.pruners.MedianPruner(),
            )
        except Exception as error:  # of SQLAlchemy and Optuna
            text = str(error).strip().partition("\n")[0]
            raise ValueError(f"--storage {file}: cannot be used: {text}") from None
        stored = self._study.user_attrs.get(_DESCRIPTION)
        if stored is None:
            self._study.set_user_attr(_DESCRIPTION, dict(description))
            return
        stored = {**earlier, **stored}
        if stored != dict(description):
            differences = [name for name in description if stored.get(name) != description[name]]
            raise ValueError(
                f"--study {name}: {file} has a search of this name with other {differences[0]}: "
                f"{stored.get(differences[0])}; repeat that one, or pass another --study"
            )

    def fail_interrupted(self) -> int:
        """Marks trials that an earlier run has not ended as failed; returns their number."""
        running = self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,))
        for trial in running:
            self._study.tell(trial.number, state=self._states.FAIL)
        return len(running)

    def start_from(self, values: Mapping[str, Any]) -> None:
        """Makes the first trial of a new study one of these values."""
        if not self._study.get_trials(deepcopy=False):
            self._study.enqueue_trial(dict(values))

    def try_all(self) -> None:
        """Makes the next trials all combinations of choices that no trial has had."""
        names = [parameter.flag for parameter in self._parameters]
        for values in itertools.product(*(parameter.values for parameter in self._parameters)):
            self._study.enqueue_trial(dict(zip(names, values, strict=True)), skip_if_exists=True)

    @property
    def num_done(self) -> int:
        """Number of trials that count: complete and pruned ones."""
        states = (self._states.COMPLETE, self._states.PRUNED)
        return len(self._study.get_trials(deepcopy=False, states=states))

    def best(self) -> tuple[int, float] | None:
        """Returns number and metric of the best complete trial; None without one."""
        best = self._best_trial()
        return None if best is None else (best.number, best.value)

    def flags_of_best(self) -> str | None:
        """Returns the text of the flags of the best complete trial.

        None without one, or of a trial of a version that did not store them.
        """
        best = self._best_trial()
        return None if best is None else best.user_attrs.get(_FLAGS)

    def _best_trial(self) -> Any:
        trials = self._study.get_trials(deepcopy=False, states=(self._states.COMPLETE,))
        sign = -1 if self._goal.lower_is_better else 1
        return max(trials, key=lambda trial: (sign * trial.value, -trial.number), default=None)

    def start_trial(self) -> Trial:
        """Returns the next trial."""
        trial = self._study.ask()
        values = {parameter.flag: parameter.suggest(trial) for parameter in self._parameters}
        return Trial(trial, values, self._goal)

    def complete(self, trial: Trial, flags: str) -> None:
        """Ends a trial with its best metric and stores its flags: its folder may be removed."""
        trial.store_flags(flags)
        self._study.tell(trial.number, trial.best)

    def prune(self, trial: Trial) -> None:
        """Ends a trial that was stopped, or whose loss became infinite; it counts."""
        self._study.tell(trial.number, state=self._states.PRUNED)

    def fail(self, trial: Trial) -> None:
        """Ends a trial that does not count."""
        self._study.tell(trial.number, state=self._states.FAIL)


class Trial:
    """One training of a search.

    Args:
        trial: that of Optuna.
        values: values of the flags that are varied.
        goal: the metric of its evaluations.

    Attributes:
        best: best metric of its evaluations; NaN before the first one.
        num_evaluations: number of evaluations so far.
    """

    def __init__(self, trial: Any, values: Mapping[str, Any], goal: Goal):
        self._trial, self.values, self._goal = trial, values, goal
        self.number: int = trial.number
        self.best, self.num_evaluations = math.nan, 0

    def evaluated(self, metric: float) -> bool:
        """Adds the metric of an evaluation; returns whether the trial continues."""
        self.num_evaluations += 1
        if self._goal.is_better(metric, self.best):
            self.best = metric
        self._trial.report(metric, self.num_evaluations)
        return not self._trial.should_prune()

    def store_flags(self, flags: str) -> None:
        """Stores the text of the trial's complete flags."""
        self._trial.set_user_attr(_FLAGS, flags)

    def __str__(self) -> str:
        values = (
            f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in self.values.items()
        )
        return "  ".join(values)
