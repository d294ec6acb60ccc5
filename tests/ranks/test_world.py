"""`World` where a rank is missing, late, dead or alone; its collectives are in test_checks.py."""

import re
import socket

import pytest

from tests.ranks.world_worker import TIMEOUT_S

WORKER = "tests/ranks/world_worker.py"
ME = rf"{re.escape(socket.gethostname())}, pid \d+"


@pytest.mark.quick("gloo-*")
@pytest.mark.parametrize(
    ("launcher", "missing", "kind"),
    [("gloo", 1, "graph"), ("mpi", 0, "eager")],
)
def test_missing_rank(run_ranks, launcher, missing, kind):
    run = run_ranks(2, WORKER, "stall", missing, kind, launcher=launcher, check=False)
    survivor = run.results[1 - missing]
    assert run.results[missing] is None
    assert re.fullmatch(
        f"the 2 processes cannot continue: rank {missing} did not come to a collective within "
        rf"{TIMEOUT_S} seconds \(--rank_timeout_s\): {ME}, in tests/ranks/world_worker.py:\d+ fail",
        survivor["message"],
    )
    assert survivor["after_s"] > TIMEOUT_S


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ended_rank(run_ranks, num_ranks):
    run = run_ranks(num_ranks, WORKER, "end", 1, "graph", check=False)
    for rank in {*range(num_ranks)} - {1}:
        message = run.results[rank]["message"]
        ended = rf"the {num_ranks} processes cannot continue: rank 1 ended \({ME}\)"
        assert re.fullmatch(ended, message), (rank, run.output)


def test_killed_rank(run_ranks):
    """horovodrun itself ends the others, possibly before they report anything."""
    run = run_ranks(2, WORKER, "kill", 1, "graph", check=False)
    assert run.returncode != 0
    assert "Process 1 exit with status code 137" in run.output


def test_rank_that_does_not_start(run_ranks):
    run = run_ranks(2, WORKER, "late", 600, check=False)
    assert run.returncode != 0
    assert "error: rank 1 of 2 did not start within 2 seconds" in run.output


def test_ranks_without_a_connection(run_ranks):
    alone = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    run = run_ranks(2, WORKER, "lonely", launcher="mpi", env=alone)
    for result in run.results:
        assert result["message"].startswith(
            "2 processes were started (OMPI_COMM_WORLD_SIZE=2), but Horovod sees 1, and each would "
            "train a model of its own: start them with `horovodrun --gloo -np 2 ...`"
        )
