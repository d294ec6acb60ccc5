"""DLRM trains on generated data for feature specs of all shapes, or reports why it cannot."""

import numpy as np
import pytest
import yaml

import dlrm
from dataloading import prepare_synthetic_dataset
from tests.recipes.test_entry_scripts import in_process

TINY = (
    "--preset=terabyte",
    *("--batch_size=128", "--valid_batch_size=128", "--embedding_dim=4", "--bottom_mlp_dims=4"),
    *("--top_mlp_dims=4,1", "--learning_rate=0.05", "--warmup_steps=1", "--print_freq=1000"),
    *("--decay_steps=0", "--seed=1", "--cpu"),
)


def odd_spec(num_numerical: int, num_categorical: int) -> dict:
    """A spec with other names and paths than ours, wider dtypes, and chunks of several features."""
    numericals = [f"Größe {i}" for i in range(num_numerical)]
    ids = [f"feature/{i}" for i in range(num_categorical)]
    float_dtypes = ["float16", "float32", "float64"]
    features = {"did_buy": {"dtype": "int32"}}
    features |= {name: {"dtype": float_dtypes[i % 3]} for i, name in enumerate(numericals)}
    features |= {
        name: {"dtype": "int64", "cardinality": 3 + 7 * i, "hotness": 1 + (i % 5 == 4)}
        for i, name in enumerate(ids)
    }
    groups = [numericals[i::3] for i in range(3)] + [ids[:4], *([name] for name in ids[4:])]
    groups = [["did_buy"], *filter(None, groups)]
    return {
        "feature_spec": features,
        "source_spec": {
            split: [
                {
                    "type": "split_binary",
                    "features": names,
                    "files": [f"{split} rows/{i}/part {p}.dat" for p in range(1 + i % 2)],
                }
                for i, names in enumerate(groups)
            ]
            for split in ("train", "test")
        },
        "channel_spec": {"label": ["did_buy"], "numerical": numericals, "categorical": ids},
    }


def prepared(tmp_path, spec, rows=512) -> int:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return prepare_synthetic_dataset.main(
        [
            *(f"--feature_spec={tmp_path / 'spec.yaml'}", f"--synthetic_dataset_dir={tmp_path}/d"),
            *("--synthetic_dataset_train_batches=4", "--synthetic_dataset_valid_batches=1"),
            f"--synthetic_dataset_batch_size={rows // 4}",
        ]
    )


# No numerical features, no categorical ones, many of both.
@pytest.mark.parametrize(("num_numerical", "num_categorical"), [(0, 10), (3, 0), (20, 30)])
def test_training(num_numerical, num_categorical, tmp_path):
    assert prepared(tmp_path, odd_spec(num_numerical, num_categorical)) == 0
    code, summary = in_process(tmp_path / "run", f"--dataset_path={tmp_path / 'd'}", *TINY)
    assert code == 0 and summary["steps"] == 4
    assert np.isfinite(summary["log_loss"]) and 0 < summary["auc"] < 1
    assert 0.6 < summary["best_reachable_auc"] <= 1


def test_no_features(tmp_path, capsys):
    assert prepared(tmp_path, odd_spec(0, 0)) == 2
    assert "neither numerical nor categorical features" in capsys.readouterr().err


def test_one_categorical_feature(tmp_path, capsys):
    """Dot products need two vectors: one of them is a trained constant, or DLRM refuses one
    feature, with a reason and solutions."""
    assert prepared(tmp_path, odd_spec(0, 1)) == 0
    flags = [f"--dataset_path={tmp_path / 'd'}", f"--run_dir={tmp_path / 'run'}", *TINY]
    assert dlrm.main(["prog", *flags]) == 0
    capsys.readouterr()
    assert dlrm.main(["prog", *flags, "--variant=nvidia"]) == 2
    assert "use --interaction cross or --variant paper" in capsys.readouterr().err
    assert dlrm.main(["prog", *flags, "--variant=nvidia", "--interaction=cross"]) == 0
