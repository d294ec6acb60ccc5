"""The file that specifies the inputs and outputs of a served model."""

import json

import pytest

from deployment.serving import interface as interfaces
from deployment.serving.interface import feature_at, id_limits
from tests.deployment.serving.made_models import CATEGORICAL, CLICKS


def test_ids_of_each_column():
    least, end = id_limits(CLICKS.features, CLICKS.inputs[1])
    assert least.tolist() == [0, 0, 0, -1, -1, -1]
    assert end.tolist() == [4, 5, 5, 6, 6, 6]
    names = [feature_at(CLICKS.features, CATEGORICAL, column).name for column in range(6)]
    assert names == ["city", "tags", "tags", "words", "words", "words"]
    least, end = id_limits(CLICKS.features[3:], CLICKS.inputs[1])
    assert (least[0], end[0]) == (0, 0), "a column of no feature"


def test_file_of_earlier_version(tmp_path):
    """The width was stored, too."""
    interfaces.write(CLICKS, tmp_path)
    path = tmp_path / "interface.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"width": CLICKS.width}))
    assert CLICKS.width == 7
    assert interfaces.read(tmp_path) == CLICKS


def test_invalid_file(tmp_path):
    with pytest.raises(
        ValueError, match="is not an interface of a model .*No such file.*deploy the"
    ):
        interfaces.read(tmp_path)
    interfaces.write(CLICKS, tmp_path)
    path = tmp_path / "interface.json"
    content = json.loads(path.read_text())
    for changed, message in (
        ([1], ""),
        (content | {"format": 2}, "has format 2, this version reads 1.*; deploy"),
        ({key: content[key] for key in content if key != "tables"}, "'tables'.; deploy"),
        (content | {"color": 1}, "'color'"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=f"is not an interface of a model .*{message}"):
            interfaces.read(tmp_path)
