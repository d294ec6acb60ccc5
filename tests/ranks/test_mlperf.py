"""`--mlperf_log` on two ranks: one file, of rank 0."""

from tests.training.test_mlperf import TINY, events, is_compliant, values_of


def test_file_of_rank_0(run_recipes, tmp_path):
    log = tmp_path / "mlperf.log"
    flags = [*TINY, "--auc_threshold=0.6", f"--mlperf_log={log}", f"--run_dir={tmp_path / 'run'}"]
    run_recipes(2, {"train": ("dcnv2.py", *flags)})
    assert is_compliant(log)
    keys = [key for key, _, _ in events(log)]
    assert keys.count("run_start") == keys.count("run_stop") == keys.count("seed") == 1
    assert keys.count("block_stop") == keys.count("eval_accuracy") >= 1
    assert values_of(log)["submission_platform"].startswith("2 x CPU (")
