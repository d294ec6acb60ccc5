"""Mixed precision on two ranks: the AUC of float32 for every placement, on skewed ids."""

import pytest

from tests.ranks.test_entry_scripts import summary

PLACEMENTS = {
    "tables": (),
    "columns": ("--column_slice_threshold", "20000"),
    "rows": ("--row_slice_threshold", "1"),
    "copies": ("--data_parallel_threshold", "100000000"),
}
TOLERANCE = 5e-4


def flags_of(folder, steps, *flags):
    return (
        *("dlrm.py", "--dataset_type", "synthetic", "--synthetic_dataset_alpha", "1.5"),
        *("--synthetic_dataset_cardinalities", "2000,1000,500,50"),
        *("--synthetic_dataset_train_batches", steps, "--synthetic_dataset_valid_batches", "8"),
        "--preset=terabyte",
        *("--embedding_dim", "16", "--bottom_mlp_dims", "32,16", "--top_mlp_dims", "32,1"),
        *("--batch_size", "8192", "--valid_batch_size", "8192", "--learning_rate", "0.5"),
        *("--warmup_steps", "0", "--decay_steps", "0", "--seed", "1", "--print_freq", "1000"),
        *("--evals_per_epoch", "1", "--run_dir", folder, *flags),
    )


@pytest.mark.parametrize(
    ("steps", "placements"),
    [(100, ["rows"]), pytest.param(300, [*PLACEMENTS], marks=pytest.mark.long)],
)
def test_auc(run_recipes, tmp_path, steps, placements):
    commands = {"float32": flags_of(tmp_path / "float32", steps)}
    for name in placements:
        commands[name] = flags_of(tmp_path / name, steps, "--amp", *PLACEMENTS[name])
    run_recipes(2, commands)
    aucs = {name: summary(tmp_path / name)["auc"] for name in commands}
    for name in placements:
        assert aucs[name] == pytest.approx(aucs["float32"], abs=TOLERANCE), aucs
