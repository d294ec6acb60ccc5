"""Training on rows of any number of ids: two ranks equal one."""

import numpy as np
import pytest

from tests.dataloading.formats.test_split_tfrecords_training import RECORDS, write_ragged
from tests.tables import arrays_of


# Long: by default test_equality.py has ragged ids on the level of layers.
@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [("--row_slice_threshold=10", "--data_parallel_threshold=30"), ("--model_parallel_input",)],
    ids=["slices and copies", "model-parallel input"],
)
def test_two_ranks(run_ranks, run_script, tmp_path, more):
    """Losses, metrics and weights of an epoch whose last batch is uneven."""
    write_ragged(tmp_path / "rows", {"train": 701, "validation": 101})
    flags = (f"--dataset_path={tmp_path / 'rows'}", *RECORDS, *more)
    one = (f"--save_checkpoint_path={tmp_path / 'one'}", f"--run_dir={tmp_path / 'run'}")
    done = run_script("dlrm.py", *flags, *one)
    assert done.returncode == 0, done.stderr
    run_ranks(
        2,
        "dlrm.py",
        *flags,
        f"--save_checkpoint_path={tmp_path / 'two'}",
        f"--run_dir={tmp_path / 'run2'}",
    )
    expected, actual = arrays_of(tmp_path / "one"), arrays_of(tmp_path / "two")
    assert expected.keys() == actual.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
