"""The predicted step time of `--plan_only`: flags, measured rates, errors."""

import re

import pytest

import dlrm
from recipes.step_prediction.kernel_rates import capped_rows

BASE = (
    *("dlrm.py", "--dataset_type=synthetic", "--synthetic_dataset_cardinalities=300,50"),
    *("--embedding_dim=16", "--bottom_mlp_dims=16", "--batch_size=64", "--plan_only"),
)


def printed(capsys, *flags):
    assert dlrm.main([*BASE, *flags]) == 0
    return capsys.readouterr().out


def step_ms(text):
    (value,) = re.findall(r"^predicted step: (\S+) ms, [\d,]+ samples/s", text, re.MULTILINE)
    return float(value.replace(",", ""))


def test_assumed_rates(capsys):
    text = printed(capsys, "--plan_world_size=1")
    (line,) = [line for line in text.splitlines() if line.startswith("rates ")]
    assert line.startswith("rates assumed (half of the published peaks")
    assert "matrix products 78 TFLOP/s" in line and "row lookup 1,000 GB/s" in line
    assert not {"network", "latency", "all-to-all"} & set(re.findall(r"[\w-]+", line))
    two = printed(capsys, "--plan_world_size=2")
    assert "latency of a collective 100 us" in two and "network" not in two.splitlines()[-1]
    machines = printed(capsys, "--plan_world_size=2", "--plan_ranks_per_machine=1")
    assert "network of a rank 12.5 GB/s" in machines and "in a machine" not in machines
    assert "matrix products 156 TFLOP/s" in printed(capsys, "--plan_world_size=1", "--amp")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--plan_tflops=1e-6", "matrix products 1e-06 TFLOP/s"),
        ("--plan_memory_gb_per_s=1e-3", "activations 0.001 GB/s, row lookup 0.001 GB/s"),
        ("--plan_machine_gb_per_s=1e-3", "all-to-all in a machine 0.001 GB/s, all-reduce in a"),
        ("--plan_network_gb_per_s=1e-3", "network of a rank 0.001 GB/s"),
        ("--plan_input_gb_per_s=1e-9", "input of a rank 1e-09 GB/s"),
        ("--plan_latency_us=1e6", "latency of a collective 1,000,000 us"),
    ],
)
def test_rates_of_flags(capsys, flag, text):
    machines = ("--plan_world_size=4", "--plan_ranks_per_machine=2")
    plain, slow = printed(capsys, *machines), printed(capsys, *machines, flag)
    assert f"rates by flags: {text}" in slow
    assert step_ms(slow) > 2 * step_ms(plain)
    assert ("limited by input" in slow) == ("input" in flag)


def test_latency(capsys):
    """Ids, vectors, gradients and one sum of 8 ranks, three times a second each."""
    text = printed(capsys, "--plan_world_size=8", "--plan_latency_us=1e6")
    assert step_ms(text) == pytest.approx(12_000, rel=1e-2)


def test_measured_rates(run_script):
    flags = ("--plan_measure", "--cpu", "--plan_world_size=1", "--intra_op_parallelism=1")
    done = run_script(*BASE, *flags, "--plan_input_gb_per_s=3")
    assert done.returncode == 0, done.stderr
    measured, by_flags = done.stdout.splitlines()[-2:]
    assert measured.startswith(
        "rates measured here (CPU, float32, 1 rank, 64 samples per rank): matrix products "
    )
    for name in ("activations", "row lookup", "row update", "dense update"):
        assert re.search(rf"{name} [\d.e-]+ GB/s", measured)
    assert by_flags == "rates by flags: input of a rank 3 GB/s"


def test_several_ranks_without_exchange_rate(capsys):
    assert dlrm.main([*BASE, "--plan_measure", "--plan_world_size=4"]) != 0
    error = capsys.readouterr().err
    assert "expected several processes" in error and "--plan_machine_gb_per_s" in error


def test_capped_rows():
    assert capped_rows([10, 4, 100], [2, 1, 2], 1000) == [10, 4, 100]
    assert capped_rows([10, 4, 100], [2, 1, 2], 40) == [9, 4, 9]  # 18 + 4 + 18
    assert capped_rows([10, 4], [2, 2], 1) == [1, 1]
    assert capped_rows([], [], 1) == []
