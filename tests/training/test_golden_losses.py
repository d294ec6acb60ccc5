"""The losses of the first 20 steps: a refactoring must leave them as they are.

After a deliberate change of the numerics, write them again with
`python -m pytest tests/training/test_golden_losses.py --write_golden` and give the reason in the
commit.
"""

import json

import pytest

import dcnv2
import dlrm
import ncf
import sim
from tests import sequence_data, tastes

FLAGS = [
    "--dataset_type=synthetic",
    "--synthetic_dataset_train_batches=20",
    "--synthetic_dataset_valid_batches=1",
    "--synthetic_dataset_cardinalities=100,7,30,1000",
    "--synthetic_dataset_hotness=1,1,3,1",
    "--synthetic_dataset_num_numerical_features=5",
    "--preset=terabyte",
    "--batch_size=512",
    "--valid_batch_size=512",
    "--embedding_dim=8",
    "--bottom_mlp_dims=16,8",
    "--top_mlp_dims=32,16,1",
    "--warmup_steps=4",
    "--decay_start_step=10",
    "--decay_steps=20",
    "--print_freq=1",
    "--seed=12",
]
RANK = "--cross_layer_projection_dim=6"
RUNS = {
    "dlrm_sgd": (dlrm, ["--learning_rate=2"]),
    "dlrm_adagrad": (dlrm, ["--optimizer=adagrad", "--learning_rate=0.1"]),
    "dlrm_rowwise_adagrad": (
        dlrm,
        ["--embedding_optimizer=rowwise_adagrad", "--learning_rate=0.2"],
    ),
    "dcnv2_lazy_adam": (dcnv2, ["--learning_rate=0.01", RANK]),
    "dcnv2_widths": (dcnv2, ["--learning_rate=0.01", "--embedding_dim=4,8,4,16", RANK]),
}


SEQUENTIAL_FLAGS = [
    "--preset=terabyte",
    *("--batch_size=32", "--embedding_dim=8", "--epochs=1", "--print_freq=1"),
    *("--seed=12", "--affinity=disabled", "--noevaluate_training_rows", "--dropout_rate=0.2"),
]
SEQUENTIAL_RUNS = {
    "sim": ["--long_seq_length=7", "--gsu_top_k=3", "--weight_decay=0.1"],
    "din_unit": ["--model_type=din", "--din_attention=unit", "--optimizer=adagrad", "--lr=0.1"],
}


COLLABORATIVE_FLAGS = [
    "--preset=terabyte",
    *("--batch_size=120", "--epochs=1", "--print_freq=1", "--seed=12", "--learning_rate=0.02"),
    *("--factors=8", "--layers=16,16,8", "--dropout=0.3", "--topk=3", "--weight_decay=0.1"),
]
COLLABORATIVE_RUNS = {"neumf": [], "neumf_in_parts": ["--batch_size=40", "--grads_accumulated=3"]}


@pytest.mark.parametrize("name", RUNS)
def test_losses_of_20_steps(name, tmp_path, root, request):
    recipe, flags = RUNS[name]
    assert recipe.main(["prog", *FLAGS, *flags, f"--run_dir={tmp_path}"]) == 0
    compare(name, losses_of(tmp_path, "loss", "log_loss"), root, request)


@pytest.mark.parametrize("name", SEQUENTIAL_RUNS)
def test_losses_of_20_steps_over_histories(name, tmp_path, root, request):
    sequence_data.write(tmp_path / "rows", 20 * 32)
    flags = [f"--dataset_path={tmp_path / 'rows'}", f"--run_dir={tmp_path}", *SEQUENTIAL_FLAGS]
    assert sim.main(["prog", *flags, *SEQUENTIAL_RUNS[name]]) == 0
    compare(name, losses_of(tmp_path, "total_loss", "test_loss"), root, request)


@pytest.mark.parametrize("name", COLLABORATIVE_RUNS)
def test_losses_of_20_steps_over_interactions(name, tmp_path, root, request):
    tastes.write(tmp_path / "rows")
    flags = [f"--dataset_path={tmp_path / 'rows'}", f"--run_dir={tmp_path}", *COLLABORATIVE_FLAGS]
    assert ncf.main(["prog", *flags, *COLLABORATIVE_RUNS[name]]) == 0
    compare(name, losses_of(tmp_path, "loss", "test_loss"), root, request)


def losses_of(run_dir, training, evaluation):
    """The losses of the steps, and that of the evaluation at the end."""
    log = [json.loads(s.removeprefix("DLLL ")) for s in (run_dir / "log.json").open()]
    losses = [line["data"][training] for line in log if training in line.get("data", {})]
    return [*losses, log[-1]["data"][evaluation]]


def compare(name, losses, root, request):
    assert len(losses) == 21
    assert losses[-1] < losses[0]
    golden = root / f"tests/golden/{name}.json"
    if request.config.getoption("--write_golden"):
        golden.write_text(json.dumps(losses, indent=1) + "\n")
    # Not bit for bit: other CPUs sum matrix products in another order.
    assert losses == pytest.approx(json.loads(golden.read_text()), rel=2e-4)
