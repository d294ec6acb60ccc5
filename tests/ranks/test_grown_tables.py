"""Tables that have grown since a checkpoint, with evicted values, are restored on any ranks."""

import numpy as np
import pytest

from preproc.transcode import __main__ as transcode
from tests.ranks.test_entry_scripts import SMALL
from tests.tables import arrays_of

# Users are sharded by rows, shops by columns; days are replicated.
SLICES = ("--column_slice_threshold", "2000", "--row_slice_threshold", "9000")
SLICES += ("--data_parallel_threshold", "500")


def encode(folder, name, users, *flags):
    rows = (f"{u % 2},u{u},s{u % 150},d{u % 7}\n" for u in users)
    (folder / f"{name}.csv").write_text("bought,user,shop,day\n" + "".join(rows))
    flags = (f"--input={folder / f'{name}.csv'}", f"--output={folder / name}", *flags)
    assert transcode.main([*map(str, flags)]) == 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory, run_recipes):
    """A model of 900 users, data of which a half is evicted and 300 are new, and its training."""
    folder = tmp_path_factory.mktemp("shop")
    flags = ("--label=bought", "--frequency_threshold=0", "--date=2026-11-05", "--split=0.9,0.1,0")
    encode(folder, "first", range(900), "--categorical=user,shop,day", *flags)
    grow = (f"--vocabulary={folder / 'first'}", "--grow", "--evict_after=1", "--date=2026-11-06")
    encode(folder, "second", range(500, 1200), *grow)
    where = ("--save_checkpoint_path", folder / "first_model", "--run_dir", folder / "run")
    first = ("dlrm.py", "--dataset_path", folder / "first", *SMALL, *where)
    run_recipes(1, {"first": first} | steps(folder, folder))
    return folder


def steps(shop, folder, *flags):
    """Command lines of a step with the second data set, and of one that moves no weight."""
    frozen = resumed(shop, "frozen", folder, "--learning_rate", "0", *flags)
    return {"moved": resumed(shop, "moved", folder, *flags), "frozen": frozen}


def resumed(shop, name, folder, *flags):
    """The command line of one step with the second data set, saved in folder/name."""
    where = ("--save_checkpoint_path", folder / name, "--run_dir", folder / f"{name}_run")
    start = ("--dataset_path", shop / "second", "--resume", shop / "first_model")
    return ("dlrm.py", *start, *where, "--evals_per_epoch", "0", "--max_steps", "1", *flags)


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_one_step_on_grown_tables(shop, run_recipes, tmp_path, num_ranks):
    """All rows and the optimizer's state are those of one rank, whatever the plan."""
    run = run_recipes(num_ranks, steps(shop, tmp_path, *SLICES))
    assert "note: new rows of tables: user 338 of 701 (455 evicted)" in run.outputs["moved"][0]
    for name in ("moved", "frozen"):
        expected, arrays = arrays_of(shop / name), arrays_of(tmp_path / name)
        assert arrays.keys() == expected.keys()
        for weight, values in arrays.items():
            np.testing.assert_allclose(values, expected[weight], 2e-5, 2e-6, err_msg=weight)
            if name == "frozen" and weight.startswith("sparse/"):
                np.testing.assert_array_equal(values, expected[weight], err_msg=weight)
    assert not np.array_equal(expected["sparse/user"], arrays_of(shop / "moved")["sparse/user"])
