"""Values of ids and ids of values, with and without an encoder."""

import numpy as np
import pyarrow as pa
import pytest

from config.command_line import parse
from dataloading.pipeline.batch import Inputs
from dataloading.spec.feature_spec import FeatureSpec
from recipes import from_flags
from recipes.original_ids import decoders, original_ids
from recipes.registry import DLRM
from tests import tastes
from tests.vocabularies import write_encoder


def spec_of(folder, **metadata):
    tastes.write(folder)
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    spec.metadata.update(metadata)
    return spec


def test_values(tmp_path):
    spec = spec_of(tmp_path)
    write_encoder(tmp_path, 1, user=["b", "a"], item=[70, -3])
    users, note = original_ids(spec, "user", 3)
    assert (len(users), users.first_id, users.ids.tolist(), note) == (3, 1, [1, 2], "")
    assert users.decode(np.array([2, 0, 1])).to_pylist() == ["a", None, "b"]
    assert users.encode(pa.array(["a", "b"]), "f").tolist() == [2, 1]
    items, _ = original_ids(spec, "item", 3)
    assert items.decode(np.array([1, 0, 2])).to_pylist() == [70, None, -3]
    assert items.encode(pa.array([-3, 70]), "f").tolist() == [2, 1]


@pytest.mark.parametrize("odd", ["007", "7.0", "", "1e3", "+1", "9999999999999999999"])
def test_integers_with_one_text(tmp_path, odd):
    write_encoder(tmp_path, item=[12, odd])
    values, _ = original_ids(spec_of(tmp_path), "item", 2)
    assert values.decode(np.arange(2)).to_pylist() == ["12", odd]


@pytest.mark.parametrize("first_id", [0, 1])
@pytest.mark.parametrize("value", ["9", "", None])
def test_unknown_value(tmp_path, first_id, value):
    write_encoder(tmp_path, first_id, user=[70, 71])
    users, _ = original_ids(spec_of(tmp_path), "user", 2 + first_id)
    with pytest.raises(ValueError, match=r"^f: row 2: expected one of the 2 .* as 70, 71, got"):
        users.encode(pa.array(["70", value]), "f")


def test_no_encoder(tmp_path):
    spec = spec_of(tmp_path)
    users, note = original_ids(spec, "user", 3)
    assert note.startswith("the data set has no vocabulary of 'user'")
    assert users.decode(np.array([2, 1])).to_pylist() == [2, 1]
    assert users.encode(pa.array(["2"]), "f").tolist() == [2]
    with pytest.raises(ValueError, match="f: row 1: expected one of the 3 values"):
        users.encode(pa.array(["3"]), "f")
    assert decoders(spec, ["user"]) == {}


def test_decoders(tmp_path):
    spec = spec_of(tmp_path)
    write_encoder(tmp_path, item=range(tastes.ITEMS))
    (name, decode), *others = decoders(spec, ["user", "history"], {"history": "item"}).items()
    assert name == "history" and not others
    assert decode(np.array([3])).to_pylist() == [3]


def test_other_encoder(tmp_path):
    spec = spec_of(tmp_path, encoder="digest")
    with pytest.raises(ValueError, match="got no folder .*: restore it"):
        original_ids(spec, "user", 2)
    write_encoder(tmp_path, user=["a"])
    with pytest.raises(ValueError, match="expected 2 ids of 'user', as in .*, got 1"):
        original_ids(spec, "user", 2)


@pytest.mark.parametrize("first_id", [0, 1])
def test_ids_without_a_group(tmp_path, first_id):
    """Samples of id 0, where it stands for unknown values, are not a group."""
    spec = spec_of(tmp_path)
    write_encoder(tmp_path, first_id, user=range(tastes.USERS - first_id))
    config = parse(["x", f"--dataset_path={tmp_path}", "--group_column=user"], DLRM)
    grouping = from_flags.grouping(config, spec, {"categorical": ["user"]}, ["user"])
    assert grouping.first_id == first_id and grouping.column_of(Inputs(None, ("ids",))) == "ids"
