"""A rank that the others wait for is named, early and at the end, with the line that it is in."""

import re
import socket

import pytest

WORKER = "tests/ranks/stall_worker.py"
SMALL = (
    *("--embedding_dim", "4", "--bottom_mlp_dims", "4", "--top_mlp_dims", "4,1", "--seed", "1"),
    "--preset=terabyte",
    *("--batch_size", "60", "--prefetch_batches", "1", "--evals_per_epoch", "0"),
)
READS = (
    r"in training/loop.py:\d+ train within tensorflow and in "
    r"tests/ranks/stall_worker.py:\d+ read_for_ever"
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_script):
    """1,000 rows, 17 steps."""
    folder = tmp_path_factory.mktemp("rows")
    command = ["-m", "dataloading.synthetic", "--output", folder, "--rows", "1000"]
    done = run_script(*command, "--validation_rows", "50", "--cardinalities", "50,9")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_frozen_rank_and_then_one_that_reads_for_ever(run_ranks, rows, tmp_path, num_ranks):
    logs = tmp_path / "logs"
    flags = (*SMALL, "--dataset_path", rows, "--run_dir", tmp_path, "--rank_logs", logs)
    flags += ("--rank_timeout_s", "12", "--epochs", "1000")
    early = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    run = run_ranks(num_ranks, WORKER, 1, logs / "rank-00000.log", *flags, env=early, check=False)
    texts = [(logs / f"rank-{rank:05d}.log").read_text() for rank in range(num_ranks)]
    pid = re.search(rf"rank 1 of {num_ranks} .*, pid (\d+), ", texts[1])[1]
    who = f"{socket.gethostname()}, pid {pid}, log {logs}/rank-00001.log"
    said = texts[0]
    end = r"; the training ends with an error after 12 s \(--rank_timeout_s\)\n"
    frozen = rf"note: still waiting after \d+ s for rank 1: {who}, no answer within 3 s from its "
    frozen += r"process, but from its machine: it is frozen .+" + end
    goes_on = r"note: the ranks go on after \d+ s\n"
    reads = rf"note: still waiting after \d+ s for rank 1: {who}, at step \d+, {READS}{end}"
    lost = rf"error: the {num_ranks} processes cannot go on: rank 1 did not come to a collective "
    lost += rf"within 12 seconds \(--rank_timeout_s\): {who}, at step \d+, {READS}\n"
    # In this order; a slow start may be noted before.
    assert re.search(f"(?s){frozen}.*{goes_on}.*{reads}.*{lost}", said), run.output
    for text in texts[2:]:
        assert re.search(lost, text), "every other rank says so"
        assert "note: still waiting" not in text, "one line, of rank 0"
    for rank, text in enumerate(texts):
        assert text.endswith(f": the end of rank {rank}\n")
    # What is in the logs is on the terminal, too.
    assert all(f"[0]<stderr>:{line}" in run.output for line in said.splitlines() if "still" in line)


@pytest.mark.long  # test_world.py has a rank 0 that sleeps
def test_rank_0_is_the_one_that_reads_for_ever(run_ranks, rows, tmp_path):
    """With MPI."""
    flags = (*SMALL, "--dataset_path", rows, "--run_dir", tmp_path, "--rank_timeout_s", "4")
    run = run_ranks(2, WORKER, 0, "-", *flags, launcher="mpi", check=False)
    assert run.returncode == 4, run.output
    where = rf"{socket.gethostname()}, pid \d+, at step \d+, {READS}"
    assert re.search(rf"still waiting after \d+ s for rank 0: {where}; ", run.output), run.output
    lost = (
        r"cannot go on: rank 0 did not come to a collective within 4 seconds \(--rank_timeout_s\): "
    )
    assert re.search(f"{lost}{where}\n", run.output), run.output
