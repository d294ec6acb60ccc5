"""Raw rows have the same scores everywhere; tests/serving/test_equal_scores.py asks a server."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from deployment.predict import __main__ as predict
from recipes import load_model
from tests import raw_events, raw_shop
from tests.deployment import test_predict_spark as spark

# Of training and serving: other kernels, another order of sums.
ATOL = 1e-6
MODELS = ["dlrm_grown", pytest.param("dcnv2", marks=pytest.mark.long), "ncf", "sim"]
EVENTS = {"ncf": raw_events.ratings, "sim": raw_events.events}


def trained(name, folder) -> raw_shop.RawModel:
    """A model of a recipe; `_grown`: trained again on a second day with new values."""
    return EVENTS[name](folder) if name in EVENTS else raw_shop.trained(name, folder)


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory) -> raw_shop.RawModel:
    return trained(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def deployed(model):
    folder = model.folder / "models"
    assert model.trained.deploy(folder, "--monolithic", "--model_name=shop") == 0
    return folder


def predicted(deployed, source) -> np.ndarray:
    output = source.with_suffix(".npy")
    flags = ["--model", str(deployed), "--input", str(source), "--output", str(output)]
    assert predict.main(flags) == 0
    return np.load(output)


def check(scores, expected):
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=0, atol=ATOL)


def test_files_and_python(model, deployed, tmp_path):
    """Scores of evaluation, of `deployment.predict` and in Python, in the order of the rows."""
    assert len(set(model.expected)) > 0.8 * len(model.rows)
    of_csv = predicted(deployed, model.folder / "rows.csv")
    check(of_csv, model.expected)
    for kind in ("jsonl", "parquet"):
        np.testing.assert_array_equal(predicted(deployed, model.folder / f"rows.{kind}"), of_csv)
    loaded = load_model(model.trained.checkpoint)
    check(loaded.predict(raw_shop.table(model.rows)), model.expected)
    check(loaded.predict(raw_shop.columns(model.rows)), model.expected)
    for row, expected in zip(model.rows[30:33], model.expected[30:33], strict=True):
        assert abs(loaded.predict(row) - expected) < ATOL
    # No column is without an effect on these rows.
    others = [row | {n: model.rows[0][n]} for n in model.rows[0] for row in model.rows]
    changed = loaded.predict(raw_shop.table(others)).reshape(-1, len(model.rows))
    assert (np.abs(changed - of_csv) > 100 * ATOL).any(axis=1).all()


def test_parts(model, deployed, tmp_path):
    """Scores of the tasks of Spark, run here."""
    source = model.folder / "rows.parquet"
    _, folder = spark.score(tmp_path, deployed, source)
    (part,) = folder.iterdir()
    scores = pq.read_table(part)["score"].to_numpy()
    np.testing.assert_array_equal(scores, predicted(deployed, source))


@spark.needs_spark
@pytest.mark.long
def test_spark(model, deployed, tmp_path):
    """Bit for bit those of the local engine."""
    source, output = model.folder / "rows.csv", tmp_path / "scores.csv"
    done = spark.run(deployed, source, output, *spark.QUICK)
    assert done.returncode == 0, done.stderr
    parts = sorted(output.glob("part-*.csv"))
    lines = [line for part in parts for line in part.read_text().splitlines()[1:]]
    assert [int(line.split(",")[0]) for line in lines] == list(range(len(model.rows)))
    scores = np.array([line.split(",")[1] for line in lines], np.float32)
    np.testing.assert_array_equal(scores, predicted(deployed, source))
