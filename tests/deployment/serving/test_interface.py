"""The file that specifies the inputs and outputs of a served model."""

import json

import pytest

from deployment.serving import interface as interfaces
from tests.deployment.serving.made_models import CLICKS


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
