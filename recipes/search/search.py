"""Search of flags: trainings in parallel processes, chosen and pruned by validation metrics."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives.launch import launched

from config.command_line import parse
from config.config import Config
from config.family import Definition
from config.flag import mask_passwords
from config.flag_file import argument
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from recipes.preset_choice import with_preset
from recipes.recipe import Goal
from recipes.registry import path_of
from recipes.search import trial_worker
from recipes.search.flag_checks import check_flags, check_model, check_names
from recipes.search.space import CHOICE, Parameter
from recipes.search.study import Study, Trial
from runtime.files.disk import FileLock
from runtime.files.outputs import output_file
from runtime.logs.run_folder import FLAGS


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search of the flags of a recipe.

    Attributes:
        arguments: flags of all trials, as on a command line.
        parameters: flags that are varied.
        study: name of the search.
        storage: file of its trials.
        num_trials: trials that are complete or pruned in the end, those of earlier runs included.
        num_workers: trials at a time.
        metric: `--metric` of all trials; None: that of the recipe.
    """

    definition: Definition
    arguments: Sequence[str]
    parameters: Sequence[Parameter]
    study: str
    storage: Path
    num_trials: int
    num_workers: int
    metric: str | None = None

    @property
    def num_combinations(self) -> float:
        """Number of different trials; infinity with a range."""
        sizes = (len(p.values) if p.kind == CHOICE else math.inf for p in self.parameters)
        return math.prod(sizes)

    @property
    def folder(self) -> Path:
        """Folder with the run of each trial."""
        is_default = self.storage.name == f"{self.study}.db"
        trials = "" if is_default else f"{self.storage.name}.trials"  # other files have this study
        return self.storage.parent / trials / self.study

    @property
    def best_flags(self) -> Path:
        """File of the flags of the best trial."""
        return self.folder.with_name(f"{self.study}.flags")

    @property
    def goal(self) -> Goal:
        """Metric of evaluations by which trials are compared."""
        return Goal(self.metric or self.definition.family.default_metric)

    def config(self, *arguments: str) -> Config:
        """Returns the flags of a trial with further arguments."""
        argv = [self.definition.name, *self.arguments_of(arguments)]
        return parse(argv, self.definition)

    def arguments_of(self, arguments: Sequence[str]) -> list[str]:
        """Returns the flags of a trial with further arguments, as on a command line."""
        metric = () if self.metric is None else (argument("metric", self.metric),)
        return [*self.arguments, *metric, *arguments]


def check(search: Search) -> tuple[Config, FeatureSpec | None]:
    """Returns the flags of all trials and the data set, if a search can use them.

    Raises:
        ValueError: it cannot, or validation samples are missing.
    """
    if launched() is not None:
        raise ValueError(
            "a search starts its own processes: expected one process, got one of a launcher; use "
            "--workers"
        )
    config = search.config()
    check_names(search.parameters, config)
    data = load_feature_spec(config)
    check_flags(config, data, search.best_flags)
    for values in _values_to_check(search.parameters):
        arguments = [argument(name, value) for name, value in values.items()]
        try:
            trial = search.config(*arguments)
            check_flags(trial, data, search.best_flags)
            check_model(trial, data)
        except ValueError as error:
            raise ValueError(f"--param, values {' '.join(arguments)}: {error}") from None
    return config, data


def _values_to_check(parameters: Sequence[Parameter]) -> Iterator[dict[str, Any]]:
    """Yields each value of each parameter, with the first values of the others."""
    first = {parameter.flag: parameter.values[0] for parameter in parameters}
    for parameter in parameters:
        for value in parameter.values:
            yield {**first, parameter.flag: value}


def run(search: Search) -> None:
    """Runs the trials that are left, and writes the flags of the best one.

    Raises:
        ValueError: flags or data cannot be used, or another process runs this search.
        OSError: a file cannot be written, or a process of the search ended.
    """
    config, data = check(search)
    chosen = with_preset(config, data)
    search = dataclasses.replace(search, metric=chosen.evaluation.metric)
    search.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(search.folder / ".lock")
    if not lock.acquire(blocking=False):
        raise ValueError(
            f"--study {search.study}: another process runs this search: wait for its end, or pass "
            "another --study"
        )
    try:
        study = _open_study(search, chosen)
        with _workers(search) as connections:
            _run_trials(search, study, connections)
    finally:
        lock.release()
    best = study.best()
    if best is None:
        print("no trial is complete: repeat the search with more --trials")
        return
    metric = f"validation {search.goal.metric} {best[1]:.5f}"
    print(f"best: trial {best[0]}, {metric}: {search.best_flags}")


def _open_study(search: Search, chosen: Config) -> Study:
    space = {p.flag: [p.kind, *p.values] for p in search.parameters}
    flags = [mask_passwords(argument) for argument in search.arguments]
    description: dict[str, Any] = {"recipe": search.definition.name, "flags": flags}
    description |= {"space": space, "metric": search.goal.metric}
    earlier = {"metric": search.definition.family.default_metric}
    study = Study(
        search.study, search.storage, search.parameters, description, search.goal, earlier
    )
    if num_interrupted := study.fail_interrupted():
        print(f"{num_interrupted} interrupted trials of an earlier run do not count")
    start = {p.flag: p.start(chosen.value(p.flag)) for p in search.parameters}
    if None not in start.values():
        study.start_from(start)
    if search.num_combinations <= search.num_trials:
        study.try_all()
    if num_done := study.num_done:
        print(f"{num_done} trials of earlier runs count")
        _write_best(search, study)
    return study


@contextlib.contextmanager
def _workers(search: Search) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    processes, connections = [], list[Connection]()
    try:
        for _ in range(search.num_workers):
            ours, theirs = context.Pipe()
            arguments = (theirs, path_of(search.definition))
            process = context.Process(target=trial_worker.work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.terminate()
            process.join()


def _run_trials(search: Search, study: Study, connections: Sequence[Connection]) -> None:
    trials: dict[Connection, Trial] = {}
    idle = list(connections)
    num_trials = min(search.num_trials, search.num_combinations)
    while True:
        while idle and study.num_done + len(trials) < num_trials:
            connection, trial = idle.pop(), study.start_trial()
            arguments = [argument(name, value) for name, value in trial.values.items()]
            folder = _folder_of(search, trial.number)
            connection.send((search.arguments_of(arguments), str(folder)))
            trials[connection] = trial
        if not trials:
            return
        ready = wait(list(trials))
        for connection in [connection for connection in trials if connection in ready]:
            trial = trials[connection]
            try:
                kind, value = connection.recv()
            except EOFError:
                raise ChildProcessError(
                    f"the process of trial {trial.number} ended ({trial}), possibly for lack of "
                    f"memory: see {_folder_of(search, trial.number) / trial_worker.OUTPUT}; the "
                    "search resumes when it is repeated, with fewer --workers"
                ) from None
            if kind == trial_worker.EVALUATION:
                connection.send(trial.evaluated(value))
                continue
            del trials[connection]
            idle.append(connection)
            _end_trial(search, study, trial, kind, value)


def _end_trial(search: Search, study: Study, trial: Trial, kind: str, text: str | None) -> None:
    if kind == trial_worker.DONE and math.isnan(trial.best):
        kind, text = trial_worker.FAILED, f"the {search.goal.metric} is undefined: see its log"
    if kind == trial_worker.FAILED:
        study.fail(trial)
        raise ValueError(f"trial {trial.number} ({trial}): {text}")
    metric = f"{search.goal.metric} {trial.best:.5f}"
    if kind == trial_worker.DONE:
        study.complete(trial, (_folder_of(search, trial.number) / FLAGS).read_text())
        best = study.best()
        assert best is not None
        outcome = f"{metric} (best {best[1]:.5f}, trial {best[0]})"
        if best[0] == trial.number:
            _write_best(search, study)
    else:
        study.prune(trial)
        outcome = f"pruned after {trial.num_evaluations} evaluations, {metric}"
        if kind == trial_worker.DIVERGED:
            outcome = "diverged"
    print(f"trial {trial.number}: {outcome}  {trial}", flush=True)


def _folder_of(search: Search, number: int) -> Path:
    return search.folder / f"trial-{number:04d}"


def _write_best(search: Search, study: Study) -> None:
    """Writes the complete flags of the best trial as a file for `--flagfile`."""
    best, flags = study.best(), study.flags_of_best()
    if best is None or flags is None:  # None: an earlier version has written the file
        return
    number, metric = best
    measured = f"validation {search.goal.metric} {metric}"
    header = f"# Trial {number} of the search {search.study}: {measured}\n"
    with output_file(search.best_flags) as stream:
        stream.write((header + flags).encode())
