"""`--mode importance` of sim.py, and command lines that it refuses.

tests/ranks/test_entry_scripts.py has that of dlrm.py.
"""

import csv
import json

import pytest

import dlrm
import ncf
import sim
from tests import sequence_data
from tests.recipes.test_entry_scripts import in_process
from tests.recipes.test_sim import TINY


def importance_of(run_dir):
    with (run_dir / "importance.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = json.loads((run_dir / "importance.json").read_text())
    assert [row["feature"] for row in rows] == [row["feature"] for row in values]
    assert (run_dir / "importance.png").exists()
    return {row.pop("feature"): {k: float(v) for k, v in row.items()} for row in rows}


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
