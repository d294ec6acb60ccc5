"""Messages about values: gaps in rows after the training, infinite numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from tests.deployment.trained import BOTTOM, DLRM
from tests.remedies.remedy import ROWS, TABLE, Remedy, check, run

# Without --fill_missing, which is the default of a folder with a feature spec.
SPEC = {
    "feature_spec": {"click": {}, "price": {}, "city": {"cardinality": "auto"}},
    "source_spec": {
        split: [
            {"type": "csv", "header": True, "features": ["city", "price", "click"], "files": [file]}
        ]
        for split, file in (("train", "rows.csv"), ("validation", "later.csv"))
    },
    "channel_spec": {"label": ["click"], "numerical": ["price"], "categorical": ["city"]},
}
NEW = "city,price\nc,2.5\na,\nb,11.41\n"  # the mean price is 11.415
ENCODE = ("transcode", "--input=new.csv", "--vocabulary=data", "--output=new")
INFINITE = ROWS.replace(",0.87,", ",inf,").replace(",1.24,", ",-Infinity,")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A data set without fill values, a model of it, and new rows of which one has a gap."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "raw").mkdir()
    (folder / "raw/rows.csv").write_text(ROWS)
    (folder / "raw/later.csv").write_text(ROWS)
    (folder / "raw/feature_spec.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False))
    (folder / "new.csv").write_text(NEW)
    data, model = folder / "data", folder / "model"
    command = ["--categorify=city", "--transform=standardize", f"--output={data}"]
    assert run(["transcode", f"--input={folder / 'raw'}", *command]) == (0, "")
    flags = [*DLRM, BOTTOM, "--epochs=1", f"--save_checkpoint_path={model}"]
    assert run(["dlrm", f"--dataset_path={data}", *flags, f"--run_dir={folder / 'run'}"])[0] == 0
    deployed = ("deploy", f"--checkpoint_dir={model}", f"--dataset_path={data}")
    assert run([*deployed, f"--model_repository={folder / 'repository'}"])[0] == 0
    return folder


def links(shop):
    def prepare(folder):
        for name in ("data", "model", "new.csv", "repository"):
            (folder / name).symlink_to(shop / name)

    return prepare


def scores(folder, data):
    """Scores of `--mode predict`, with the checkpoint of the data set without fill values."""
    command = ["dlrm", f"--dataset_path={data}", "--mode=predict", "--cpu", "--run_dir=run"]
    command += ["--restore_checkpoint_path=model", "--predictions_path=scores.npy"]
    assert run(command)[0] == 0
    return np.load(folder / "scores.npy")


def test_gap_in_rows_to_encode(shop, tmp_path, monkeypatch):
    case = Remedy(
        "a gap in new rows",
        links(shop),
        ENCODE,
        "new.csv, row 2 (rows are counted from 1, a header is not): feature 'price': expected a",
        "fill missing values with --fill_missing mean (or 0, or another value) of preproc",
        lambda folder: (*ENCODE, "--fill_missing=mean"),
    )
    check(case, tmp_path, monkeypatch)
    encoder = Encoder.load("new/encoder")
    assert encoder["price"].fill == pytest.approx(11.415)
    stored = np.fromfile(tmp_path / "new/test/numerical.bin", np.float16)
    spec = FeatureSpec.from_yaml(tmp_path / "new/feature_spec.yaml")
    assert spec.dtype("price") == np.float16
    np.testing.assert_allclose(stored[1:], 0, atol=1e-3)
    # The checkpoint stays valid, and equal values get equal scores.
    (tmp_path / "full.csv").write_text("city,price\nc,2.5\na,11.415\nb,11.41\n")
    full = [word.replace("new", "full") for word in ENCODE]
    assert run(full)[0] == 0
    np.testing.assert_array_equal(scores(tmp_path, "new"), scores(tmp_path, "full"))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("price=3", "--fill_missing price=3: filled fills it with 11.415"),
        ("prize=3", "did you mean 'price'"),
        ("median", "expected 'mean' or a finite number, got 'median'"),
        ("mean", ""),
    ],
)
def test_fill_values_of_a_filled_data_set(shop, flag, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    links(shop)(tmp_path)
    assert run([*ENCODE[:-1], "--output=filled", "--fill_missing=mean"])[0] == 0
    command = ["transcode", "--input=new.csv", "--vocabulary=filled", "--output=again"]
    status, errors = run([*command, f"--fill_missing={flag}"])
    assert (status, message in errors) == (2 if message else 0, True)


def test_gap_in_rows_to_score(shop, tmp_path, monkeypatch):
    again = "--checkpoint_dir=model", "--dataset_path=data", "--model_repository=filled"

    def deploy(folder):
        assert run(["deploy", *again, "--fill_missing=mean"])[0] == 0
        return ("predict", "--model=filled", "--input=new.csv", "--output=scores.csv")

    case = Remedy(
        "a gap in rows to score",
        links(shop),
        ("predict", "--model=repository", "--input=new.csv"),
        "column 'price': got no value; expected a value",
        "or of deployment.deploy if a model is deployed",
        deploy,
    )
    check(case, tmp_path, monkeypatch)
    table = pa_csv.read_csv(tmp_path / "scores.csv")
    (tmp_path / "full.csv").write_text("city,price\nc,2.5\na,11.415\nb,11.41\n")
    command = ["predict", "--model=repository", "--input=full.csv", "--output=full.npy"]
    assert run(command)[0] == 0
    np.testing.assert_allclose(table["score"], np.load(tmp_path / "full.npy"), rtol=1e-6)


def test_fill_values_of_encoded_requests(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    links(shop)(tmp_path)
    command = ["deploy", "--checkpoint_dir=model", "--dataset_path=data", "--inputs=encoded"]
    status, errors = run([*command, "--model_repository=other", "--fill_missing=mean"])
    assert status == 2 and "hold no missing values: leave the flag out" in errors


def infinite_parquet(folder):
    table = pa.table({"price": [1.5, np.inf, 2.5, None] * 10, "click": [0, 1] * 20})
    pq.write_table(table, folder / "rows.parquet")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("rows.csv", "replace it by a finite number"),
        ("rows.csv", "--missing_values=-Infinity,inf"),
        ("rows.parquet", "replace infinite values"),
        ("rows.parquet", "--missing_values inf"),
    ],
)
def test_infinite_numbers(name, remedy, tmp_path, monkeypatch):
    """The infinite values of the text are `inf` and `-Infinity`."""

    def prepare(folder):
        (folder / "rows.csv").write_text(INFINITE)
        infinite_parquet(folder)

    def apply(folder):
        if remedy.startswith("--"):
            return (*command, *remedy.split())
        (folder / "rows.csv").write_text(ROWS)
        table = pa.table({"price": [1.5, 3.5, 2.5, None] * 10, "click": [0, 1] * 20})
        pq.write_table(table, folder / "rows.parquet")
        return None

    command = (*TABLE, f"--input={name}", "--numerical=price")
    seen = "'price': "
    check(Remedy("infinity", prepare, command, seen, remedy, apply), tmp_path, monkeypatch)
    if remedy.startswith("--"):
        price = Encoder.load("data/encoder").profile["price"]
        assert price.missing == (2 if name == "rows.csv" else 20)
