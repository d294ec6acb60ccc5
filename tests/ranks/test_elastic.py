"""Hosts come, ranks die, and the training ends as an undisturbed one (`--elastic`).

horovodrun counts hosts: after a failure it never starts anything on that host again. This machine
has three names that Horovod takes for its own, so that it is three hosts here; tests/cluster/ has
hosts of their own.
"""

import re
import stat
from pathlib import Path

import numpy as np
import pytest

from runtime import checkpoint
from runtime.checkpoint import Folder
from tests.ranks import paced_training
from tests.ranks.background_training import STARTED, Training

HOSTS = ("localhost", "127.0.0.1", "127.1")
TRAINED = (
    *("--learning_rate", "0.002", "--checkpoint_every", "6", "--print_freq", "10"),
    "--preset=terabyte",
    *("--batch_size", "500", "--epochs", "12"),  # 11 steps an epoch; 3 ranks do not divide it
)


@pytest.fixture(scope="module")
def undisturbed(rows, tmp_path_factory) -> Path:
    """A training on one process, to its end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Training(rows, folder, *TRAINED) as training:
        training.finish()
    return folder


class Hosts:
    """Hosts that horovodrun discovers, by a script that prints a file."""

    def __init__(self, folder: Path):
        self._file, self.script = folder / "hosts", folder / "discover.sh"
        self.script.write_text(f"#!/bin/sh\ncat '{self._file}'\n")
        self.script.chmod(self.script.stat().st_mode | stat.S_IXUSR)

    def are(self, *names: str) -> None:
        """There is a place for one rank on each from now on."""
        whole = self._file.with_suffix(".new")
        whole.write_text("".join(f"{name}:1\n" for name in names))
        whole.replace(self._file)


@pytest.fixture
def hosts(tmp_path) -> Hosts:
    return Hosts(tmp_path)


def train(
    rows: Path,
    folder: Path,
    hosts: Hosts,
    ranks: int,
    *flags: object,
    least: int = 2,
    **variables: str,
):
    """An elastic training that begins with `ranks` ranks, and comes to its end only without the
    file `folder / "slow"`."""
    (folder / "slow").touch()
    variables["PACED_BY"] = str(folder / "slow")
    launch = ("-np", ranks, "--min-np", least, "--max-np", 3, "--network-interfaces", "lo")
    launch += ("--host-discovery-script", f"'{hosts.script}'")
    flags = (*TRAINED, *flags, "--elastic", "--resume", "auto")
    return Training(
        *(rows, folder, *flags),
        ranks=ranks,
        launch=launch,
        variables=variables,
        program=("-m", paced_training.__name__),
    )


def finish(training: Training, folder: Path) -> None:
    """Lets it come to its end, and waits for that."""
    (folder / "slow").unlink()
    training.finish()


def starts(training: Training) -> int:
    """Returns the number of times that steps began."""
    return training.output.count(STARTED)


def check_same_end(folder: Path, reference: Path) -> None:
    """Compares position, weights, optimizer and curve, up to the order of sums."""
    ours, theirs = (Folder(end / "checkpoints").newest().path for end in (folder, reference))
    files = sorted(path.relative_to(theirs) for path in theirs.rglob("*.npy"))
    assert len(files) > 20
    assert files == sorted(path.relative_to(ours) for path in ours.rglob("*.npy"))
    for file in files:
        np.testing.assert_allclose(
            np.load(ours / file), np.load(theirs / file), rtol=0.02, atol=2e-4, err_msg=str(file)
        )
    state, expected = (checkpoint.describe(path).state for path in (ours, theirs))
    for seen in ("step", "epoch", "row"):
        assert state[seen] == expected[seen], seen
    for curve in ("train_loss", "validation_auc"):
        np.testing.assert_allclose(
            state["history"][curve], expected["history"][curve], rtol=1e-4, err_msg=curve
        )


def test_joining_dying_and_leaving_ranks(rows, hosts, undisturbed, tmp_path):
    """2 ranks; 3, of which the one that writes checkpoints and log is killed; 2, of which one gets
    SIGTERM, as on a machine that will be taken away; 1."""
    hosts.are(*HOSTS[:2])
    with train(rows, tmp_path, hosts, 2, least=1) as training:
        training.wait_for_start()
        hosts.are(*HOSTS)
        training.wait_until(lambda: starts(training) == 2, every_s=0.02)
        assert len(training.ranks()) == 3, training.output
        training.wait_for_checkpoints(1)
        training.ranks()[0].kill()
        training.wait_until(lambda: starts(training) == 3, every_s=0.02)
        training.wait_for_checkpoints(1)  # all of them train, and handle signals
        training.ranks()[1].terminate()
        finish(training, tmp_path)
        output = training.output
    assert "elastic: restart 1: stopped by horovodrun: hosts came or went; ranks now: 3" in output
    died = r"elastic: restart 2: the 3 processes cannot continue: rank 0 ended.*; ranks now: 2"
    assert re.search(died, output), output
    assert re.search(r"elastic: restart 3: stopped by SIGTERM; ranks now: 1", output), output
    assert "exit with status code 75" in output, output
    assert len(re.findall(r"\d\]<stdout>:resumed \S+ at step \d+ of 132", output)) == 3, output
    check_same_end(tmp_path, undisturbed)
    log = (tmp_path / "run/log.json").read_text()
    assert log.count('"PARAMETER"') == 4, "one log for all of it"


@pytest.mark.long
def test_death_during_a_restart(rows, hosts, undisturbed, tmp_path):
    """The one that is left waits a minute for a rank that will never start."""
    hosts.are(*HOSTS)
    with train(rows, tmp_path, hosts, 3, least=1) as training:
        training.wait_for_checkpoints(1)
        _, second, third = training.ranks()
        second.kill()
        training.wait_until(lambda: "[2]<stderr>:elastic: " in training.output)
        third.kill()
        finish(training, tmp_path)
        assert "did not start within 60 seconds; ranks now: 1" in training.output
    check_same_end(tmp_path, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("frozen", [0, 1])
def test_frozen_rank(rows, hosts, undisturbed, tmp_path, frozen):
    """The others give it up after 8 s and wait for its end or its return."""
    hosts.are(*HOSTS)
    given_up = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "8"}
    flags = ("--rank_logs", tmp_path / "logs")
    with train(rows, tmp_path, hosts, 3, *flags, **given_up) as training:
        training.wait_for_checkpoints(1)
        ranks = training.ranks()
        ranks[frozen].suspend()
        others = {0, 1, 2} - {frozen}
        for other in others:
            stuck = (
                f"[{other}]<stderr>:elastic: the 3 processes cannot continue: rank {frozen} did not"
            )
            training.wait_until(lambda stuck=stuck: stuck in training.output, every_s=0.1)
        ranks[frozen].resume()
        finish(training, tmp_path)
        assert "ranks now: 3" in training.output
    check_same_end(tmp_path, undisturbed)
    logs = [(tmp_path / f"logs/rank-{rank:05d}.log").read_text() for rank in range(3)]
    assert all(log.count("=== ") >= 6 and "elastic: " in log for log in logs), "before and after"
