"""Recipes on two ranks, of which one has no use for what a compiled step receives there."""

import numpy as np
import pyarrow.parquet
import pytest

from tests.dataloading.formats.test_split_tfrecords_training import RECORDS, write_ragged
from tests.recipes.test_entry_scripts import TINY
from tests.tables import arrays_of

# One table in one piece: rank 1 has none.
ONE_TABLE = (
    "--dataset_type=synthetic",
    "--synthetic_dataset_cardinalities=1000",
    "--synthetic_dataset_train_batches=3",
    "--synthetic_dataset_valid_batches=2",
    "--column_slice_threshold=100000000",
    "--rank_timeout_s=60",
    *TINY,
)


@pytest.fixture(scope="module")
def runs(run_recipes, tmp_path_factory):
    """The folders of one rank's and of two ranks' runs."""
    rows = tmp_path_factory.mktemp("rows")
    # cat_0 and cat_2 have one id per sample, cat_1 any number: they are on different ranks.
    write_ragged(rows, {"train": 301, "validation": 101})
    ragged = (f"--dataset_path={rows}", *RECORDS, "--rank_timeout_s=60")

    def commands(folder) -> dict[str, tuple]:
        lines = {}
        for name, flags in {"ragged": ragged, "one_table": ONE_TABLE}.items():
            model = f"--save_checkpoint_path={folder / name}"
            lines[name] = ("dlrm.py", *flags, model, f"--run_dir={folder / 'run'}")
        more = (f"--restore_checkpoint_path={folder / 'one_table'}", "--mode=predict")
        scores = f"--predictions_path={folder / 'scores.parquet'}"
        lines["predict"] = ("dlrm.py", *ONE_TABLE, *more, scores, f"--run_dir={folder / 'run'}")
        return lines

    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for num_ranks, folder in enumerate(folders, 1):
        run_recipes(num_ranks, commands(folder))
    return folders


@pytest.mark.parametrize("name", ["ragged", "one_table"])
def test_training(runs, name):
    one, two = (arrays_of(folder / name) for folder in runs)
    assert one.keys() == two.keys()
    for weight, array in one.items():
        np.testing.assert_allclose(two[weight], array, rtol=1e-4, atol=1e-5, err_msg=weight)


def test_prediction(runs):
    one, two = (pyarrow.parquet.read_table(folder / "scores.parquet")[-1] for folder in runs)
    np.testing.assert_allclose(two.to_numpy(), one.to_numpy(), rtol=1e-4)
