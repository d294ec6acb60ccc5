import json
import shutil

import numpy as np
import pytest

from deployment.model.trained_model import (
    evaluation_rows,
    open_checkpoint,
    restored_recipe,
    tables_of,
)
from runtime import checkpoint
from runtime.checkpoint import files
from runtime.checkpoint.folder import BEST


def rewritten(path, folder, change):
    """A copy of a folder's checkpoint whose description `change` edits."""
    copy = shutil.copytree(checkpoint.resolve(path), folder / "changed")
    index = files.read_index(copy)
    description = json.loads(json.dumps(index.description))
    change(description)
    files.write_index(copy, index._replace(description=description))
    return copy


@pytest.mark.parametrize("recipe", ["dlrm", "dcnv2", "sim", "ncf"])
def test_model_of_checkpoint(recipe, request):
    trained = request.getfixturevalue(f"trained_{recipe}")
    model = open_checkpoint(str(trained.checkpoint))
    assert model.recipe == recipe
    assert model.config.run.mode == "eval"
    saved = {name: e.shape for name, e in model.index.weights.items() if name.startswith("sparse/")}
    assert {f"sparse/{name}": (rows, dim) for name, rows, dim in tables_of(model)} == saved


def test_scores_of_restored_model(trained_dlrm, tmp_path):
    model = open_checkpoint(str(trained_dlrm.checkpoint))
    recipe = restored_recipe(model, batch_size=100)
    rows = evaluation_rows(model, batch_size=70)
    batches = list(rows.dataset())
    assert [len(batch.labels) for batch in batches] == [70, 70, 70, 70, 20]
    scores = [1 / (1 + np.exp(-recipe.model(batch.inputs).numpy())) for batch in batches]
    wanted = trained_dlrm.scores(tmp_path)
    np.testing.assert_allclose(np.concatenate(scores)[:, 0], wanted, rtol=1e-5)


def test_rows_of_splits_and_lists(trained_ncf):
    model = open_checkpoint(str(trained_ncf.checkpoint))
    rows = evaluation_rows(model, batch_size=30, split="test")
    assert rows.batch_size == 26  # two candidate lists of 13
    with pytest.raises(ValueError, match="validation"):
        evaluation_rows(model, batch_size=30, split="validation")


def test_best_checkpoint(trained_ncf):
    model = open_checkpoint(str(trained_ncf.checkpoint))
    assert model.path.resolve() == (trained_ncf.checkpoint / BEST).resolve()


def test_moved_data_set(trained_dlrm, trained_dcnv2, tmp_path):
    def move(description):
        description["flags"]["dataset_path"] = str(tmp_path / "gone")

    copy = rewritten(trained_dlrm.checkpoint, tmp_path, move)
    with pytest.raises(ValueError, match=r"trained on .*gone.*--dataset_path"):
        open_checkpoint(str(copy))
    model = open_checkpoint(str(copy), str(trained_dlrm.data))
    assert model.config.data.dataset_path == str(trained_dlrm.data)


def test_other_feature_spec(trained_dlrm, tmp_path):
    """A feature spec may differ in comments, but not in content."""
    spec = (trained_dlrm.data / "feature_spec.yaml").read_text()
    (tmp_path / "feature_spec.yaml").write_text(spec + "\n# a comment changes nothing\n")
    open_checkpoint(str(trained_dlrm.checkpoint), str(tmp_path))
    (tmp_path / "feature_spec.yaml").write_text(spec.replace("metadata:", "metadata:\n  x: 1", 1))
    message = (
        r"was trained on another feature spec than .*feature_spec.yaml \(fingerprint [0-9a-f]{12}, "
        r"this is [0-9a-f]{12}\): give the training's data set, or a folder with its feature_spec"
    )
    with pytest.raises(ValueError, match=message):
        open_checkpoint(str(trained_dlrm.checkpoint), str(tmp_path))


def test_missing_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"--checkpoint_dir .* contains a checkpoint"):
        open_checkpoint(str(tmp_path))


def test_unknown_recipe(trained_dlrm, tmp_path):
    def rename(description):
        description["recipe"] = "wide_and_deep"

    copy = rewritten(trained_dlrm.checkpoint, tmp_path, rename)
    with pytest.raises(ValueError, match="wide_and_deep, expected one of dlrm, dcnv2, sim, ncf"):
        open_checkpoint(str(copy))


def test_layout_of_nvidia_recipe(tmp_path):
    (tmp_path / "sparse").mkdir()
    config = {"categorical_cardinalities": [10], "embedding_dim": [8]}
    (tmp_path / "sparse" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="which does not name its data set: give the folder"):
        open_checkpoint(str(tmp_path))
    with pytest.raises(ValueError, match="has tables and no MLPs"):
        open_checkpoint(str(tmp_path), str(tmp_path))
