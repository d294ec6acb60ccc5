"""Search of flags: trainings in parallel processes, chosen and pruned by validation metrics."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from distributed_embeddings.collectives.launch import launched

import config as configuration
from config import Config
from config.flag import COLLABORATIVE, RANKING
from config.flag_file import argument
from dataloading.spec.feature_spec import VALIDATION
from recipes import ctr
from recipes.definition import Definition
from recipes.from_flags import evaluation_split, load_feature_spec
from recipes.search import worker
from recipes.search.space import Parameter
from recipes.search.study import Study, Trial
from runtime.files.atomic import FileLock, atomic_file
from runtime.logs.run_folder import FLAGS
from training.setup import with_preset

# Flags of one run, which trials would share.
_OF_ONE_RUN = (
    *("run_dir", "log_path", "tensorboard_dir", "rank_logs", "mlperf_log", "checkpoint_dir"),
    *("save_checkpoint_path", "resume", "load_checkpoint_path", "saved_model_output_path"),
    *("elastic", "plan_only", "benchmark"),
)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search of the flags of a recipe.

    Attributes:
        definition: the recipe.
        arguments: flags of all trials, as on a command line.
        parameters: flags that are varied.
        study: name of the search.
        storage: file of its trials.
        num_trials: trials that are complete or pruned in the end, those of earlier runs included.
        num_workers: trials at a time.
    """

    definition: Definition
    arguments: Sequence[str]
    parameters: Sequence[Parameter]
    study: str
    storage: Path
    num_trials: int
    num_workers: int

    @property
    def folder(self) -> Path:
        """Folder with the run of each trial."""
        return self.storage.parent / self.study

    @property
    def best_flags(self) -> Path:
        """File of the flags of the best trial."""
        return self.storage.parent / f"{self.study}.flags"

    @property
    def metric(self) -> str:
        """Metric of evaluations that is maximized."""
        return "hit rate" if self._flag_set in COLLABORATIVE else "auc"

    @property
    def _flag_set(self) -> str:
        return self.definition.flags_of or self.definition.name

    def config(self, *arguments: str) -> Config:
        """Returns the flags of a trial with further arguments."""
        definition = self.definition
        parts = (definition.defaults, definition.aliases, definition.flags_of)
        argv = [definition.name, *self.arguments, *arguments]
        return configuration.parse(argv, definition.name, *parts)


def check(search: Search) -> Config:
    """Returns the flags of all trials, if a search can use them and every value of its space.

    Raises:
        ValueError: it cannot, or validation samples are missing.
    """
    if launched() is not None:
        raise ValueError(
            "a search starts its own processes: expected one process, got one of a launcher; use "
            "--workers"
        )
    config = search.config()
    if config.run.mode != "train":
        raise ValueError(f"a search trains models, got --mode {config.run.mode}: leave it out")
    if not config.evaluation.evals_per_epoch:
        raise ValueError("a search compares evaluations, got --evals_per_epoch 0: pass at least 1")
    names = [name for name in _OF_ONE_RUN if name in config.explicit]
    if names:
        raise ValueError(
            f"--{names[0]} is of a single run, and each trial is one: leave it out; train the best "
            f"flags with it after the search (--flagfile {search.best_flags})"
        )
    for parameter in search.parameters:
        if parameter.flag in config.explicit or parameter.flag in _OF_ONE_RUN:
            raise ValueError(
                f"--param {parameter.flag}: expected a flag that trials do not share, and that is "
                "not passed after --; leave one of them out"
            )
        for value in parameter.values:
            search.config(argument(parameter.flag, value))
    _check_validation_split(config)
    return config


def _check_validation_split(config: Config) -> None:
    """Raises ValueError if trainings do not evaluate validation samples."""
    spec = load_feature_spec(config)
    if config.data.dataset_type == "synthetic" or spec is None:
        return  # generated samples have every split
    if config.flag_set in RANKING:
        spec = ctr.spec_of_data(config, spec)
    split = evaluation_split(config.data.eval_mapping, "train", spec)
    if split != VALIDATION:
        raise ValueError(
            f"{spec.origin}: expected a split '{VALIDATION}' to compare trials on, got "
            f"'{split}': flags that are chosen on test samples have test metrics that are too "
            "high, and on training samples overfit. Prepare the data with a validation split"
        )


def run(search: Search) -> None:
    """Runs the trials that are left, and writes the flags of the best one.

    Raises:
        ValueError: flags or data cannot be used, or another process runs this search.
        OSError: a file cannot be written, or a process of the search ended.
    """
    config = check(search)
    search.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(search.folder / ".lock")
    if not lock.acquire(blocking=False):
        raise ValueError(
            f"--study {search.study}: another process runs this search: wait for its end, or pass "
            "another --study"
        )
    try:
        study = _open_study(search, config)
        with _workers(search) as connections:
            _run_trials(search, study, connections)
    finally:
        lock.release()
    best = study.best()
    if best is None:
        print("no trial is complete: repeat the search with more --trials")
        return
    print(f"best: trial {best[0]}, validation {search.metric} {best[1]:.5f}: {search.best_flags}")


def _open_study(search: Search, config: Config) -> Study:
    space = {p.flag: [p.kind, *p.values] for p in search.parameters}
    description = {"recipe": search.definition.name, "flags": list(search.arguments)}
    study = Study(search.study, search.storage, search.parameters, {**description, "space": space})
    if num_interrupted := study.fail_interrupted():
        print(f"{num_interrupted} interrupted trials of an earlier run do not count")
    chosen = with_preset(config)
    start = {p.flag: p.start(chosen.value(p.flag)) for p in search.parameters}
    if None not in start.values():
        study.start_from(start)
    if num_done := study.num_done:
        print(f"{num_done} trials of earlier runs count")
        _write_best(search, study)
    return study


@contextlib.contextmanager
def _workers(search: Search) -> Iterator[list[Connection]]:
    """Starts the processes that train, and ends them."""
    context = multiprocessing.get_context("spawn")
    processes, connections = [], list[Connection]()
    try:
        for _ in range(search.num_workers):
            ours, theirs = context.Pipe()
            arguments = (theirs, search.definition.name)
            process = context.Process(target=worker.work, args=arguments, daemon=True)
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
    while True:
        while idle and study.num_done + len(trials) < search.num_trials:
            connection, trial = idle.pop(), study.start_trial()
            arguments = [argument(name, value) for name, value in trial.values.items()]
            folder = _folder_of(search, trial.number)
            connection.send(([*search.arguments, *arguments], str(folder)))
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
                    f"memory: see {_folder_of(search, trial.number) / worker.OUTPUT}; the search "
                    "resumes when it is repeated, with fewer --workers"
                ) from None
            if kind == worker.EVALUATION:
                connection.send(trial.evaluated(value))
                continue
            del trials[connection]
            idle.append(connection)
            _end_trial(search, study, trial, kind, value)


def _end_trial(search: Search, study: Study, trial: Trial, kind: str, text: str | None) -> None:
    """Ends a trial in the study and prints a line on it."""
    if kind == worker.DONE and math.isnan(trial.best):
        kind, text = worker.FAILED, f"the {search.metric} is undefined: see its log"
    if kind == worker.FAILED:
        study.fail(trial)
        raise ValueError(f"trial {trial.number} ({trial}): {text}")
    metric = f"{search.metric} {trial.best:.5f}"
    if kind == worker.DONE:
        study.complete(trial)
        best = study.best()
        assert best is not None
        outcome = f"{metric} (best {best[1]:.5f}, trial {best[0]})"
        if best[0] == trial.number:
            _write_best(search, study)
    else:
        study.prune(trial)
        outcome = f"pruned after {trial.num_evaluations} evaluations, {metric}"
        if kind == worker.DIVERGED:
            outcome = "diverged"
    print(f"trial {trial.number}: {outcome}  {trial}", flush=True)


def _folder_of(search: Search, number: int) -> Path:
    return search.folder / f"trial-{number:04d}"


def _write_best(search: Search, study: Study) -> None:
    """Writes the complete flags of the best trial as a file for `--flagfile`."""
    if (best := study.best()) is None:
        return
    number, metric = best
    header = f"# Trial {number} of the search {search.study}: validation {search.metric} {metric}\n"
    flags = (_folder_of(search, number) / FLAGS).read_text()
    with atomic_file(search.best_flags) as stream:
        stream.write((header + flags).encode())
