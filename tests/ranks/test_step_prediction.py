"""`--plan_only --plan_measure` on two ranks: their exchange is measured, the plan printed once."""

import re


def test_measured_exchange(run_ranks):
    flags = ("--dataset_type=synthetic", "--synthetic_dataset_cardinalities=300,50", "--cpu")
    small = ("--embedding_dim=16", "--bottom_mlp_dims=16", "--batch_size=64")
    plan = ("--plan_only", "--plan_measure", "--plan_world_size=4", "--plan_ranks_per_machine=2")
    done = run_ranks(2, "dlrm.py", *flags, *small, *plan)
    assert done.output.count("predicted step: ") == 1
    (measured,) = re.findall(r"rates measured here .*", done.output)
    assert "(CPU, float32, 2 ranks, 16 samples per rank)" in measured
    for name in ("all-to-all in a machine", "all-reduce in a machine", "latency of a collective"):
        assert re.search(rf"{name} [\d.e,-]+ (GB/s|us)", measured)
    assert re.search(r"rates assumed .*: network of a rank 12.5 GB/s", done.output)
