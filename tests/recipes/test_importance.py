"""`--mode importance` of dlrm.py and sim.py, and command lines that it refuses."""

import csv
import json

import pytest

import dlrm
import ncf
import sim
from tests import sequence_data
from tests.recipes.test_entry_scripts import in_process
from tests.recipes.test_sim import TINY

DLRM = ("--embedding_dim=8", "--bottom_mlp_dims=16,8", "--top_mlp_dims=16,1", "--seed=3")


def importance_of(run_dir):
    with (run_dir / "importance.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = json.loads((run_dir / "importance.json").read_text())
    assert [row["feature"] for row in rows] == [row["feature"] for row in values]
    assert (run_dir / "importance.png").exists()
    return {row.pop("feature"): {k: float(v) for k, v in row.items()} for row in rows}


@pytest.mark.long
def test_importance_of_a_ranking_model(rows, tmp_path, capsys):
    model = f"--save_checkpoint_path={tmp_path / 'model'}"
    data = (f"--dataset_path={rows}", "--eval_mapping=validation", *DLRM)
    assert in_process(tmp_path / "train", *data, model, recipe=dlrm)[0] == 0
    flags = ("--mode=importance", f"--restore_checkpoint_path={tmp_path / 'model'}")
    flags += ("--importance_repeats=2",)
    capsys.readouterr()
    code, summary = in_process(tmp_path / "all", *data, *flags, recipe=dlrm)
    output = capsys.readouterr().out
    assert code == 0
    result = importance_of(tmp_path / "all")
    assert len(result) == 18 and f"{max(result, key=lambda f: result[f]['auc_drop'])} " in output
    assert result["cat_0"]["auc_drop"] > 0.01 and result["cat_0"]["log_loss_rise"] > 0
    # Independent of the batch size; the metrics are those of --mode eval.
    batches = (*flags, "--valid_batch_size=100")
    assert in_process(tmp_path / "batches", *data, *batches, recipe=dlrm)[0] == 0
    other = importance_of(tmp_path / "batches")
    assert {f: pytest.approx(values, abs=1e-6) for f, values in result.items()} == other
    flags = ("--mode=eval", flags[1])
    code, evaluated = in_process(tmp_path / "eval", *data, *flags, recipe=dlrm)
    assert evaluated["auc"] == summary["auc"] and evaluated["log_loss"] == summary["log_loss"]


def test_importance_of_a_sequential_model(tmp_path):
    sequence_data.write(tmp_path / "rows", 300)
    flags = (f"--dataset_dir={tmp_path / 'rows'}", *TINY, "--model_type=din", "--epochs=6")
    model = f"--save_checkpoint_path={tmp_path / 'model'}"
    assert in_process(tmp_path / "train", *flags, model, recipe=sim)[0] == 0
    flags += ("--mode=importance", f"--restore_checkpoint_path={tmp_path / 'model'}")
    assert in_process(tmp_path / "result", *flags, recipe=sim)[0] == 0
    result = importance_of(tmp_path / "result")
    features = {"user_id", "item_id_trgt", "cat_id_trgt", "item_id_pos", "cat_id_pos"}
    assert set(result) == features
    assert any(values["auc_drop"] > 0 for values in result.values())


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        (ncf, (), "ncf.py has only the user and the item"),
        (dlrm, ("--seed=1",), "--mode importance needs a trained model"),
        (
            dlrm,
            ("--dataset_type=synthetic", "--restore_checkpoint_path=model"),
            "expected a stored data set, got --dataset_type",
        ),
    ],
)
def test_refused_command_lines(tmp_path, capsys, recipe, flags, message):
    flags = ("--mode=importance", *(flags or ("--restore_checkpoint_path=model",)))
    assert in_process(tmp_path / "run", "--dataset_path=data", *flags, recipe=recipe)[0] == 2
    assert message in capsys.readouterr().err
