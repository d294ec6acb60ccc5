"""`python -m dataloading.describe --checkpoint`: norms by hand, and ids that no sample has."""

import re

import numpy as np
import pytest

from dataloading.describe import __main__ as describe
from tests import sequence_data
from tests.dataloading.test_describe import FILES, described
from tests.runtime.checkpoint.array_weights import ArrayWeight, save

USERS = np.zeros((300, 2), np.float32)
USERS[0], USERS[7], USERS[299], USERS[1] = (3, 4), (6, 8), (0, 1), (0, 298)
TAGS = np.ones((9, 4), np.float32)


def described_tables(folder, path, capsys) -> tuple[int, str]:
    code = describe.main([str(folder), "--checkpoint", str(path)])
    report = capsys.readouterr()
    return code, report.out + report.err


@pytest.fixture
def data(tmp_path, capsys):
    folder = tmp_path / "rows"
    folder.mkdir()
    assert described(folder, capsys)[0] == 0
    return folder


def test_tables_by_hand(data, tmp_path, capsys):
    """Users 0, 7 and 299 and tags 1 to 6 occur in `train`."""
    weights = [ArrayWeight("sparse/user", USERS), ArrayWeight("sparse/tags", TAGS)]
    path = save(tmp_path / "model", [*weights, ArrayWeight("dense/bias", np.ones(3))], {})
    for place in (path, tmp_path / "model"):
        code, report = described_tables(data, place, capsys)
        assert code == 0
        assert report.splitlines()[-3:] == [
            f"tables of {path}:",
            "  user: 300 x 2, norms of rows: min 0, mean 1.047, max 298; 297 ids (99.0%) in no row "
            "of 'train', mean norm 1.003",
            "  tags: 9 x 4, norms of rows: min 2, mean 2, max 2; 3 ids (33.3%) in no row of "
            "'train', mean norm 2",
        ]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (ArrayWeight("dense/bias", TAGS), "expected a checkpoint with embedding tables"),
        (ArrayWeight("sparse/tags", TAGS[:8]), "'tags' has 8 rows, .* has 9 ids of a feature"),
        (ArrayWeight("sparse/tags", USERS), "'tags' has 300 rows, .* has 9 ids of a feature"),
        (ArrayWeight("sparse/shop", TAGS), "'shop' has 9 rows, .* has no ids of a feature 'shop'"),
    ],
)
def test_checkpoint_of_another_model(data, tmp_path, capsys, weight, message):
    code, report = described_tables(data, save(tmp_path / "model", [weight], {}), capsys)
    assert code == 2
    assert re.search(message, report.splitlines()[-1])


def test_missing_checkpoint(data, tmp_path, capsys):
    code, report = described_tables(data, tmp_path / "nowhere", capsys)
    assert code == 2
    assert f"--checkpoint {tmp_path / 'nowhere'}: the folder does not exist" in report


def test_broken_data_set(tmp_path, capsys):
    """Faults are the last lines: tables are not read."""
    assert described(tmp_path, capsys, user=FILES["user.bin"][:3])[0] == 1
    code, report = described_tables(tmp_path, tmp_path / "nowhere", capsys)
    assert code == 1 and "tables of" not in report


def test_histories(tmp_path, capsys):
    """Tables of SIM have norms; the records of its data set are not read."""
    sequence_data.write(tmp_path / "rows", 5)
    tables = {"user_id": 41, "item_id_trgt": 61, "cat_id_trgt": 5}
    weights = [ArrayWeight(f"sparse/{name}", np.ones((n, 4))) for name, n in tables.items()]
    path = save(tmp_path / "model", weights, {})
    code, report = described_tables(tmp_path / "rows", path, capsys)
    assert code == 0, report
    lines = report.splitlines()
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        *("train", "test", "every file is there; those of type tfrecord were not checked"),
        f"tables of {path}",
    ]
    assert sum("tfrecord: rows and values are not checked" in line for line in lines) == 2
    norms = "norms of rows: min 2, mean 2, max 2; ids in use are unknown"
    assert lines[-3:] == [f"  {name}: {n} x 4, {norms}" for name, n in tables.items()]


def test_missing_histories(tmp_path, capsys):
    sequence_data.write(tmp_path, 5)
    (tmp_path / "test.tfrecord").unlink()
    assert describe.main([str(tmp_path)]) == 1
    assert "split 'test': file 'test.tfrecord' is not there" in capsys.readouterr().out
