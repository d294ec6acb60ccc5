"""A rank that the others wait for is named, with the line that it is in."""

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
    r"in training/loop.py:\d+ run within tensorflow and in "
    r"tests/ranks/stall_worker.py:\d+ read_forever"
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_script):
    """1,000 rows, 17 steps."""
    folder = tmp_path_factory.mktemp("rows")
    command = ["-m", "dataloading.synthetic", "--output", folder, "--rows", "1000"]
    done = run_script(*command, "--validation_rows", "50", "--cardinalities", "50,9")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_rank_that_reads_forever(run_ranks, rows, tmp_path, num_ranks):
    logs = tmp_path / "logs"
    flags = (*SMALL, "--dataset_path", rows, "--run_dir", tmp_path, "--rank_logs", logs)
    run = run_ranks(num_ranks, WORKER, 1, "read", *flags, "--rank_timeout_s", "6", check=False)
    texts = [(logs / f"rank-{rank:05d}.log").read_text() for rank in range(num_ranks)]
    pid = re.search(rf"rank 1 of {num_ranks} .*, pid (\d+), ", texts[1])[1]
    who = f"{socket.gethostname()}, pid {pid}, log {logs}/rank-00001.log"
    lost = rf"error: the {num_ranks} processes cannot continue: rank 1 did not come to a "
    lost += rf"collective within 6 seconds \(--rank_timeout_s\): {who}, at step \d+, {READS}\n"
    for rank, text in enumerate(texts):
        assert (re.search(lost, text) is not None) == (rank != 1), run.output


@pytest.mark.long
@pytest.mark.parametrize(
    ("rank", "how", "state"),
    [(0, "read", rf"at step \d+, {READS}"), (1, "freeze", "no answer: its process is frozen, .*")],
)
def test_stalled_rank_with_mpi(run_ranks, rows, tmp_path, rank, how, state):
    flags = (*SMALL, "--dataset_path", rows, "--run_dir", tmp_path, "--rank_timeout_s", "4")
    run = run_ranks(2, WORKER, rank, how, *flags, launcher="mpi", check=False)
    assert run.returncode == 4, run.output
    lost = rf"cannot continue: rank {rank} did not come to a collective within 4 seconds "
    lost += rf"\(--rank_timeout_s\): {socket.gethostname()}, pid \d+, {state}\n"
    assert re.search(lost, run.output), run.output
