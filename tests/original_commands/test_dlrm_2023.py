"""Commands of the document of DLRM and DCNv2 of 2023, on generated clicks."""

import pytest

from tests.original_commands.commands import CTR_SIZES, read_log


def test_help(commands):
    text = commands.run(4)
    for flag in ("--dataset_path", "--restore_checkpoint_path", "--save_checkpoint_path"):
        assert flag in text


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["dlrm.py", "dcnv2.py"])
def test_very_large_tables(commands, clicks, tmp_path, recipe):
    """The document has the command for dlrm.py and names dcnv2.py as its alternative."""
    (tmp_path / "dlrm").symlink_to(clicks)
    results = tmp_path / "results"
    commands.variables |= {"data": tmp_path, "results": results, "sizes": CTR_SIZES}
    commands.shell(commands.text(2).replace("dlrm.py", recipe))
    summary = read_log(results / "log.json")[-1][1]
    assert summary["throughput"] > 0 and 0 < summary["auc"] < 1


@pytest.mark.long
def test_preparation(prepare):
    prepare(1, threshold=0)
