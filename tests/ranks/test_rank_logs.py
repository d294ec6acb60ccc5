"""--rank_logs on several ranks; how one process ends is in tests/runtime/logs/test_rank_logs.py."""

import re
import socket


def test_logs_of_ranks(run_ranks, tmp_path):
    (tmp_path / "bad-1").write_text("")
    run = run_ranks(
        2,
        "tests/ranks/log_worker.py",
        *(tmp_path, "--dataset_type", "synthetic", "--synthetic_dataset_cardinalities", "9,5"),
        *("--synthetic_dataset_train_batches", "3", "--synthetic_dataset_valid_batches", "1"),
        "--preset=terabyte",
        *("--batch_size", "8", "--valid_batch_size", "8", "--embedding_dim", "4"),
        *("--bottom_mlp_dims", "4", "--top_mlp_dims", "4,1", "--run_dir", tmp_path / "run"),
        check=False,
    )
    assert run.returncode != 0
    result, _ = run.results
    assert result["codes"] == [2, 0], run.output
    bad = re.findall(r"\[\d\]<stderr>:(dlrm: error: .*--rank_logs.*)", run.output)
    assert set(bad) == {
        f"dlrm: error: rank 1: --rank_logs {tmp_path}/bad-1/logs: the log of rank 1 on "
        f"{socket.gethostname()} cannot be written (Not a directory); give a folder that every "
        "process may write"
    }
    assert "error: rank 1: " in (tmp_path / "bad-0/logs/rank-00000.log").read_text()
    first, second = ((tmp_path / f"good/rank-0000{rank}.log").read_text() for rank in (0, 1))
    assert re.search(r"\nepoch 0 step 3/3  validation auc ", first)
    assert re.search(r"\[0\]<stdout>:epoch 0 step 3/3  validation auc ", run.output)
    for name in ("HOROVOD_CONTROLLER=gloo", "HOROVOD_GLOO_RENDEZVOUS_PORT="):
        assert name in first and name in second
    assert re.search(r"\n(rank 1 still speaks()|the last word of rank 1()){2}$", second)
    pid = re.search(r"rank 1 of 2 .*, pid (\d+), ", second)[1]
    # The ranks have been introduced to each other in the first training, where it had no log.
    who = f"{socket.gethostname()}, pid {pid}"
    assert result["message"] == f"the 2 processes cannot continue: rank 1 ended ({who})"
    assert "[1]<stderr>:the last word of rank 1" in run.output
