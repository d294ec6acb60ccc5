"""DLRM and DCNv2 on split TFRecords with rows of any length, through their command lines."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

import dcnv2
import dlrm
from dataloading.formats.split_tfrecords.writer import SplitTFRecordsWriter
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec
from tests.recipes.test_entry_scripts import TINY, in_process
from tests.tables import arrays_of

RECORDS = ("--dataset_type=split_tfrecords", *TINY)


def write_ragged(folder, num_samples: dict[str, int]) -> None:
    """Generated clicks of which row i has the first i % 4 of its three ids of feature `cat_1`."""
    spec = synthetic_spec([10, 20, 5], hotness=[1, 3, 1], num_numerical=2)
    sources = {}
    for split, rows in num_samples.items():
        loader = SyntheticDataset(spec, split, rows, num_samples=rows)
        (*numerical, first, many, last, label) = loader.stored_samples(0, rows)
        lengths = np.arange(rows) % 4
        kept = np.arange(3) < lengths[:, None]
        ragged = Ragged.from_lengths(many[kept], lengths)
        columns = [
            replace(column, width=None) if column.feature == "cat_1" else column
            for column in loader.columns
        ]
        sizes = {"prebatch": 100, "batches_per_file": 3}
        writer = SplitTFRecordsWriter(folder, split, spec, columns, **sizes)
        writer.add([*numerical, first, ragged, last, label])
        sources[split] = writer.close()
    FeatureSpec(spec.feature_spec, sources, spec.channel_spec).to_yaml(folder / "feature_spec.yaml")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    write_ragged(folder, {"train": 1000, "validation": 300, "test": 201})
    return folder


AMP = ("--amp", "--optimizer=adam")


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        (dlrm, ()),
        pytest.param(dcnv2, (), marks=pytest.mark.long),
        pytest.param(dlrm, AMP, marks=pytest.mark.long),
        pytest.param(dcnv2, AMP, marks=pytest.mark.long),
    ],
    ids=["dlrm", "dcnv2", "dlrm amp", "dcnv2 amp"],
)
def test_training_resume_evaluation_and_prediction(records, tmp_path, recipe, more):
    """8 steps at once are 3 steps and 5 more; the evaluation counts each of the 300 rows."""
    data = (f"--dataset_path={records}", *RECORDS, "--epochs=2", *more)
    save = "--save_checkpoint_path"
    code, whole = in_process(tmp_path / "run", *data, f"{save}={tmp_path / 'a'}", recipe=recipe)
    assert code == 0 and whole["steps"] == 8 and 0 < whole["auc"] < 1
    parts = (*data, f"{save}={tmp_path / 'b'}", "--resume=auto")
    assert in_process(tmp_path / "run", *parts, "--max_steps=3", recipe=recipe)[0] == 0
    assert in_process(tmp_path / "run", *parts, "--max_steps=-1", recipe=recipe)[0] == 0
    expected, result = arrays_of(tmp_path / "a"), arrays_of(tmp_path / "b")
    assert expected.keys() == result.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array, err_msg=name)
    if more:
        return
    use = (f"--dataset_path={records}", RECORDS[0], f"--restore_checkpoint_path={tmp_path / 'a'}")
    flags = (*use, "--mode=eval", "--eval_mapping=validation", "--valid_batch_size=64")
    _, evaluated = in_process(tmp_path / "eval", *flags, recipe=recipe)
    assert evaluated["auc"] == pytest.approx(whole["auc"], abs=1e-6)
    assert evaluated["log_loss"] == pytest.approx(whole["log_loss"], abs=1e-6)
    scores = tmp_path / "scores.parquet"
    flags = (*use, "--mode=predict", f"--predictions_path={scores}", "--valid_batch_size=64")
    assert in_process(tmp_path / "predict", *flags, recipe=recipe)[1]["rows"] == 201
    assert pyarrow.parquet.read_table(scores).num_rows == 201


def test_folder_of_the_original_and_its_plan(records, tmp_path, capsys):
    """A spec without sources: the folders determine the rows of the evaluation."""
    for folder in records.iterdir():
        (tmp_path / folder.name).symlink_to(folder)
    (tmp_path / "feature_spec.yaml").unlink()
    content = FeatureSpec.from_yaml(records / "feature_spec.yaml").to_dict()
    FeatureSpec.from_dict({**content, "source_spec": None}, tmp_path).to_yaml(
        tmp_path / "feature_spec.yaml"
    )
    data = (f"--dataset_path={tmp_path}", *RECORDS, "--max_steps=1")
    code, summary = in_process(tmp_path / "run", *data)
    assert code == 0 and summary["steps"] == 1 and "auc" in summary
    assert dlrm.main(["prog", *data[:-1], "--plan_only"]) == 0
    assert "cat_1" in capsys.readouterr().out
