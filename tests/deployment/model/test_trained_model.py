import json
import shutil

import numpy as np
import pytest

from deployment.model.served_model import candidates_of, interface_of
from deployment.model.trained_model import evaluation_rows, open_checkpoint, restored_model
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


def test_scores_of_restored_model(trained_dlrm, tmp_path):
    model = open_checkpoint(str(trained_dlrm.checkpoint))
    restored = restored_model(model)
    rows = evaluation_rows(model, batch_size=70)
    batches = list(rows.dataset())
    assert [len(batch.labels) for batch in batches] == [70, 70, 70, 70, 20]
    scores = [1 / (1 + np.exp(-restored(batch.inputs).numpy())) for batch in batches]
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


def moved(model, folder):
    """A copy of a checkpoint whose data set is gone."""

    def move(description):
        description["flags"]["dataset_path"] = str(folder / "gone")

    return rewritten(model.checkpoint, folder, move)


def test_moved_data_set(trained_dlrm, tmp_path):
    """A checkpoint of an earlier version, without a feature spec, needs its path."""
    copy = moved(trained_dlrm, tmp_path)
    files.write_index(copy, files.read_index(copy)._replace(files={}))
    with pytest.raises(ValueError, match=r"trained on .*gone.*--dataset_path"):
        open_checkpoint(str(copy))
    model = open_checkpoint(str(copy), str(trained_dlrm.data))
    assert model.config.data.dataset_path == str(trained_dlrm.data)


@pytest.mark.parametrize("recipe", ["dlrm", "sim", "ncf"])
def test_data_set_of_the_checkpoint(recipe, request, tmp_path):
    """Only what reads samples needs the data set, with an error that names the flag."""
    trained = request.getfixturevalue(f"trained_{recipe}")
    there = open_checkpoint(str(trained.checkpoint))
    gone = open_checkpoint(str(moved(trained, tmp_path)))
    assert gone.spec == there.spec and gone.spec.base_directory == gone.path
    assert interface_of(gone) == interface_of(there)
    restored_model(gone)
    message = (
        r"the samples to evaluate are in the data set .*gone: name its folder with --dataset_p"
    )
    with pytest.raises(ValueError, match=message):
        evaluation_rows(gone, 10)
    if recipe == "sim":
        with pytest.raises(ValueError, match="items that a recommender searches.*--dataset_path"):
            candidates_of(gone)
    if recipe == "ncf":
        np.testing.assert_array_equal(candidates_of(gone), candidates_of(there))


def test_replaced_data_set(trained_dlrm, tmp_path):
    """Another data set in the place of the training's is not taken for it, unless it is named."""
    copy = moved(trained_dlrm, tmp_path)
    spec = (trained_dlrm.data / "feature_spec.yaml").read_text()
    (tmp_path / "gone").mkdir()
    other = spec.replace("metadata:", "metadata:\n  x: 1", 1)
    (tmp_path / "gone/feature_spec.yaml").write_text(other)
    assert open_checkpoint(str(copy)).spec.base_directory == copy
    with pytest.raises(ValueError, match="expected the data set of its training"):
        open_checkpoint(str(copy), str(tmp_path / "gone"))


def test_other_feature_spec(trained_dlrm, tmp_path):
    """A feature spec may differ in comments, but not in content."""
    spec = (trained_dlrm.data / "feature_spec.yaml").read_text()
    (tmp_path / "feature_spec.yaml").write_text(spec + "\n# a comment changes nothing\n")
    open_checkpoint(str(trained_dlrm.checkpoint), str(tmp_path))
    (tmp_path / "feature_spec.yaml").write_text(spec.replace("metadata:", "metadata:\n  x: 1", 1))
    message = (
        f"expected the data set of its training, {trained_dlrm.data}, got {tmp_path}/feature_spec"
        r".yaml of other content \(fingerprint [0-9a-f]{12}, not [0-9a-f]{12}\): pass"
    )
    with pytest.raises(ValueError, match=message):
        open_checkpoint(str(trained_dlrm.checkpoint), str(tmp_path))


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
