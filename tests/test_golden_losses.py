"""The losses of the first 20 steps: a refactoring must leave them as they are.

After a deliberate change of the numerics, write them anew with
`python -m pytest tests/test_golden_losses.py --write_golden` and say why in the commit.
"""

import json

import pytest

import dcnv2
import dlrm

FLAGS = [
    "--dataset_type=synthetic",
    "--synthetic_dataset_train_batches=20",
    "--synthetic_dataset_valid_batches=1",
    "--synthetic_dataset_cardinalities=100,7,30,1000",
    "--synthetic_dataset_hotness=1,1,3,1",
    "--synthetic_dataset_num_numerical_features=5",
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


@pytest.mark.parametrize("name", RUNS)
def test_losses_of_20_steps(name, tmp_path, root, request):
    recipe, flags = RUNS[name]
    assert recipe.main(["prog", *FLAGS, *flags, f"--run_dir={tmp_path}"]) == 0
    log = [json.loads(s.removeprefix("DLLL ")) for s in (tmp_path / "log.json").open()]
    losses = [line["data"]["loss"] for line in log if "loss" in line.get("data", {})]
    losses.append(log[-1]["data"]["log_loss"])
    assert len(losses) == 21
    assert losses[-1] < losses[0]
    golden = root / f"tests/golden/{name}.json"
    if request.config.getoption("--write_golden"):
        golden.write_text(json.dumps(losses, indent=1) + "\n")
    # Not bit for bit: other CPUs sum matrix products in another order.
    assert losses == pytest.approx(json.loads(golden.read_text()), rel=2e-4)
