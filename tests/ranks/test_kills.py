"""Trainings that are killed or stopped again and again end as an undisturbed one.

`tests/runtime/checkpoint/test_kill_points.py` kills saves at every call to the file system; here
whole trainings are killed, at random moments.
"""

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from runtime import checkpoint
from runtime.checkpoint import Folder
from runtime.checkpoint.reader import verify
from tests.ranks import slow_words
from tests.ranks.background_training import (
    KILLED,
    STARTED,
    STEPS_PER_EPOCH,
    Training,
    newest,
    writing,
)

# A training that is to be killed or stopped does not end before, however late that comes.
ENDLESS = ("--epochs", "1000000")
LEAST_EPOCHS = 4
STOPPED = 75


def check_whole(folder: Path) -> int:
    """Every checkpoint that has its name is whole; the newest one's step."""
    saved = Folder(folder).list()
    for one in saved:
        faults = [fault for _, fault in verify(one.path) if fault]
        assert faults == [], one
        assert checkpoint.describe(one.path).state["step"] == one.step
    return saved[-1].step if saved else 0


# What a training ends with.


def last_of(folder: Path) -> tuple[dict[str, bytes], dict]:
    """(every file of arrays, where the training was without the times) of the last checkpoint."""
    path = Folder(folder / "checkpoints").newest().path
    files = {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*.npy"))}
    state = checkpoint.describe(path).state
    return files, {name: value for name, value in state.items() if name != "elapsed_s"}


def losses(folder: Path) -> dict[tuple[int, int], set[float]]:
    """By epoch and step the losses of the log; several where parts were trained again."""
    losses_by_step: dict[tuple[int, int], set[float]] = {}
    for line in (folder / "run/log.json").read_text().splitlines():
        entry = json.loads(line.removeprefix("DLLL "))
        if entry["type"] == "LOG" and "loss" in entry["data"]:
            losses_by_step.setdefault(tuple(entry["step"]), set()).add(entry["data"]["loss"])
    return losses_by_step


def check_same_end(folder: Path, reference: Path) -> None:
    """Weights, optimizers' state, learning curve, best metrics: bit for bit those of the reference,
    and so is every loss that was logged on the way."""
    files, state = last_of(folder)
    expected_files, expected_state = last_of(reference)
    assert len({name.split("/")[0] for name in files}) >= 6, "dense and sparse, and their state"
    assert list(files) == list(expected_files)
    assert [name for name in files if files[name] != expected_files[name]] == []
    assert state.keys() == expected_state.keys()
    for name in ("train_loss", "validation_loss", "validation_auc"):
        curve, expected = state["history"][name], expected_state["history"][name]
        missing = [point for point in expected if point not in curve]
        assert curve == expected, f"{name}: {missing} are missing, or other points are there"
    assert state == expected_state
    logged = losses(folder)  # where it was stopped there is one more
    for place, expected in losses(reference).items():
        assert logged[place] == expected, place
    check_whole(folder / "checkpoints")
    left = sorted(os.listdir(folder / "checkpoints"))
    assert len(left) == 3 and left[0] == ".lock", left


@pytest.fixture(scope="module")
def undisturbed(rows, tmp_path_factory):
    """`undisturbed(ranks, *flags)`: the folder of a training to its end, made once."""
    folders: dict[tuple, Path] = {}

    def train(ranks: int, *flags: object) -> Path:
        key = (ranks, *map(str, flags))
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("undisturbed")
            with Training(rows, folders[key], *flags, ranks=ranks) as training:
                training.finish()
        return folders[key]

    return train


# Killed.


def flags_on(ranks: int) -> tuple[str, ...]:
    """Returns flags to save often, and on one process to evaluate after every step."""
    return *KILLED, "--evals_per_epoch", str(STEPS_PER_EPOCH if ranks == 1 else 1)


def to_the_end(step: int) -> tuple[str, str]:
    """The flag of a training that has an end, some steps after `step`."""
    return "--epochs", str(max(LEAST_EPOCHS, step // STEPS_PER_EPOCH + 1))


def kill_at_random(training: Training, draw, in_writing: bool, who: str) -> bool:
    """Kills at a random moment between its first steps and, about, its third checkpoint.

    Args:
      draw: numpy's random generator.
      in_writing: while a checkpoint is being written.
      who: "all" processes, or "one" of the ranks, after which the others must end by themselves.

    Returns:
      whether a checkpoint was being written indeed.
    """
    checkpoints = int(draw.integers(0, 3))
    training.wait_for_checkpoints(checkpoints)
    time.sleep(draw.uniform(0, 0.1 if checkpoints else 0.6))
    if who == "one":
        training.wait_for_handlers()
    if in_writing:
        training.hold_while_writing()
    assert training.process.poll() is None, training.output
    if who == "all":
        training.kill()
        return writing(training.checkpoints)
    ranks = training.ranks()
    victim = int(draw.integers(0, len(ranks)))
    ranks[victim].kill()
    amid = writing(training.checkpoints)  # which rank 0 may yet bring to its end
    if in_writing:
        with contextlib.suppress(psutil.NoSuchProcess):  # it is the victim
            ranks[0].resume()
    others = set(range(len(ranks))) - {victim}
    # The launcher does so, too, sooner or later, and they must report why they end all the same.
    deadline = time.monotonic() + 120
    while training.process.poll() is None and time.monotonic() < deadline:
        for other in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                ranks[other].terminate()
        time.sleep(0.002)
    assert training.wait(1) != 0
    assert f"Process {victim} exit with status code 137" in training.output, training.output
    for other in others:
        error = f"[{other}]<stderr>:dlrm: error: the {len(ranks)} processes cannot continue: rank "
        assert error in training.output, training.output
    assert f"cannot continue: rank {victim} ended" in training.output, training.output
    return amid


@pytest.mark.parametrize(
    ("ranks", "who", "kills"),
    [
        pytest.param(1, ["all"], 3, id="one process", marks=pytest.mark.long),
        pytest.param(
            2, ["all", "one", "one"], 3, id="2 ranks", marks=pytest.mark.long
        ),  # the first "one" amid writing
        pytest.param(1, ["all"], 50, id="one process, 50 kills", marks=pytest.mark.long),
        pytest.param(2, ["all"], 25, id="2 ranks, all, 25 kills", marks=pytest.mark.long),
        pytest.param(2, ["one"], 25, id="2 ranks, one, 25 kills", marks=pytest.mark.long),
    ],
)
def test_repeated_kills(rows, undisturbed, tmp_path, ranks, who, kills):
    """Each start resumes the newest checkpoint; a third of the kills come while one is written."""
    flags, draw = flags_on(ranks), np.random.default_rng(kills)
    endless = (*flags, *ENDLESS, "--resume", "auto")
    step, in_writing, begins = 0, 0, STARTED
    for number in range(kills):
        with Training(rows, tmp_path, *endless, ranks=ranks) as training:
            training.wait_for_start(begins)
            amid = kill_at_random(training, draw, number % 3 == 1, who[number % len(who)])
        in_writing += amid
        before, step = step, check_whole(training.checkpoints)
        assert step >= before
        if step:
            resumed = f"{newest(training.checkpoints):05d}-step-{step}"
            begins = f"/checkpoints/{resumed} at step {step} of "
        print(f"kill {number + 1}: step {before} to {step}{amid * ' while one was written'}")
    assert step > 0
    assert in_writing >= kills // 3
    end = to_the_end(step)
    with Training(rows, tmp_path, *flags, *end, "--resume", "auto", ranks=ranks) as training:
        training.finish()
    check_same_end(tmp_path, undisturbed(ranks, *flags, *end))


# Stopped by a signal.


def stopped_at(training: Training, name: str) -> int:
    """Returns the step at which the training was stopped, with a checkpoint of that step."""
    (step,) = re.findall(rf"dlrm: stopped by {name} at step (\d+) of \d+; ", training.output)
    saved = Folder(training.checkpoints).newest()
    assert saved.step == int(step)
    assert f"the last checkpoint is {saved.path}. Resume with --resume auto" in training.output
    check_whole(training.checkpoints)
    return int(step)


@pytest.mark.long
def test_stop_and_resume(rows, undisturbed, tmp_path):
    """One process, SIGTERM and then SIGINT, where an evaluation is due after every step."""
    flags = flags_on(1)  # as above: the undisturbed one is made once
    steps = []
    for name in ("SIGTERM", "SIGINT"):
        with Training(rows, tmp_path, *flags, *ENDLESS, "--resume", "auto") as training:
            training.wait_for_start()
            training.wait_for_checkpoints(2)
            training.process.send_signal(getattr(signal, name))
            assert training.wait() == STOPPED, training.output
            steps.append(stopped_at(training, name))
    assert 0 < steps[0] < steps[1]
    end = to_the_end(steps[1])
    with Training(rows, tmp_path, *flags, *end, "--resume", "auto") as training:
        training.finish()
    check_same_end(tmp_path, undisturbed(1, *flags, *end))


@pytest.mark.long
def test_signal_to_one_rank(rows, undisturbed, tmp_path):
    """SIGTERM to rank 1, then SIGINT to rank 0, which reports it long after rank 1 has ended."""
    flags = (*flags_on(2), "--resume", "auto")
    slow = ("-m", slow_words.__name__)
    steps = []
    for name, rank in (("SIGTERM", 1), ("SIGINT", 0)):
        with Training(rows, tmp_path, *flags, *ENDLESS, ranks=2, program=slow) as training:
            training.wait_for_start()
            training.wait_for_checkpoints(2)
            training.ranks()[rank].send_signal(getattr(signal, name))
            assert training.wait() != 0
            assert f"exit with status code {STOPPED}" in training.output, training.output
            steps.append(stopped_at(training, name))
    assert 0 < steps[0] < steps[1]
    end = to_the_end(steps[1])
    with Training(rows, tmp_path, *flags, *end, ranks=2) as training:
        training.finish()
    check_same_end(tmp_path, undisturbed(2, *flags_on(2), *end))


def test_signal_during_evaluation(tmp_path):
    """It stops before the evaluation is done, and the next run evaluates first."""
    folder = tmp_path / "rows"
    write_dataset(folder, synthetic_spec([100, 9]), {"train": 1200, "validation": 400_000})
    many = ("--valid_batch_size", "5")  # 80,000 batches, more than a minute
    with Training(folder, tmp_path / "a", *many, "--learning_rate", "0.01") as training:
        training.wait_until(lambda: "step 2/2  loss" in training.output)
        time.sleep(0.5)
        training.process.send_signal(signal.SIGTERM)
        assert training.wait(60) == STOPPED, training.output
        assert stopped_at(training, "SIGTERM") == 2
    assert "auc" not in training.output
    (saved,) = Folder(training.checkpoints).list()
    assert checkpoint.describe(saved.path).state["evaluated_step"] == 0
    few = ("--valid_batch_size", "50000", "--resume", "auto")
    with Training(folder, tmp_path / "a", *few) as training:
        training.finish()
    assert re.search(r"step 2/2  validation auc 0\.\d+", training.output), training.output
    _, state = last_of(tmp_path / "a")
    assert (state["step"], state["evaluated_step"]) == (2, 2)
    assert state["best"]["best_auc_step"] == 2
    assert [step for step, _ in state["history"]["train_loss"]] == [2]


# Other ranks, other plans.

LEGS = [
    # Ranks, flags, and which pieces the tables of 1000, 700 and 50 rows must have.
    (1, (), {"cat_0.npy", "cat_1.npy", "cat_2.npy"}),
    (
        4,
        ("--row_slice_threshold", "16000", "--column_slice_threshold", "6000"),
        {
            *(f"cat_0,rows={r}-{r + 250}.npy" for r in (0, 250, 500, 750)),
            *("cat_1,columns=0-8.npy", "cat_1,columns=8-16.npy", "cat_2.npy"),
        },
    ),
    (
        2,
        (
            *("--column_slice_threshold", "9000", "--data_parallel_threshold", "900"),
            *("--row_slice_threshold", "999999"),  # not what the checkpoint brings along
        ),
        {
            *("cat_0,columns=0-8.npy", "cat_0,columns=8-16.npy"),
            *("cat_1,columns=0-8.npy", "cat_1,columns=8-16.npy", "cat_2.npy"),
        },
    ),
    (
        3,
        ("--row_slice_threshold", "11000", "--dist_strategy", "memory_balanced"),
        {
            *("cat_0,rows=0-334.npy", "cat_0,rows=334-667.npy", "cat_0,rows=667-1000.npy"),
            *("cat_1,rows=0-234.npy", "cat_1,rows=234-467.npy", "cat_1,rows=467-700.npy"),
            "cat_2.npy",
        },
    ),
]


@pytest.mark.parametrize(
    ("optimizer", "legs"),
    [
        ("rowwise_adagrad", (LEGS[0], LEGS[2])),
        *(
            pytest.param(optimizer, LEGS, marks=pytest.mark.long)
            for optimizer in ("rowwise_adagrad", "adam", "adagrad", "lazy_adam")
        ),
    ],
)
def test_other_ranks_and_plans(rows, undisturbed, tmp_path, optimizer, legs):
    """Each leg trains 7 steps; the weights are those of one process."""
    flags = ("--learning_rate", "0.001", "--embedding_optimizer", optimizer)
    flags += ("--epochs", "4", "--evals_per_epoch", "0", "--max_steps")
    for leg, (ranks, plan, expected) in enumerate(legs, 1):
        steps = (*flags, str(7 * leg), "--resume", "auto")
        with Training(rows, tmp_path, *steps, *plan, ranks=ranks) as training:
            training.finish()
        path = Folder(training.checkpoints).newest().path
        assert path.name == f"{leg:05d}-step-{7 * leg}"
        tables = {f.name for f in (path / "sparse").iterdir()}
        assert {f for f in tables if re.match(r"cat_[012]\b", f)} == expected
    reference = undisturbed(1, *flags, str(7 * len(legs)))
    exported = [
        export(folder, tmp_path / name) for folder, name in ((tmp_path, "a"), (reference, "b"))
    ]
    assert exported[0].keys() == exported[1].keys()
    assert len({name.split("/")[0] for name in exported[0]}) >= 6
    for name, values in exported[1].items():
        np.testing.assert_allclose(exported[0][name], values, rtol=3e-5, atol=3e-5, err_msg=name)
    mine, theirs = last_of(tmp_path)[1], last_of(reference)[1]
    for name in ("step", "epoch", "row"):
        assert mine[name] == theirs[name]


def export(folder: Path, output: Path) -> dict[str, np.ndarray]:
    """Whole arrays of the last checkpoint, by file."""
    from runtime.checkpoint.__main__ import main

    assert main(["export", str(folder / "checkpoints"), "--output", str(output)]) == 0
    return {str(f.relative_to(output)): np.load(f) for f in sorted(output.rglob("*.npy"))}
