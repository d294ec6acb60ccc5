"""Messages about data sets: raw data in their place, other paths, those of other recipes."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.amazon_books.generate_reviews import main as generate_reviews
from tests.remedies.remedy import LOG, ROWS, Remedy, check, run, then, written

PLAN = ("--plan_only", "--plan_world_size=1")


def recipe(name: str, path: str, *flags: str) -> tuple[str, ...]:
    return (name, f"--dataset_path={path}", *(flags or PLAN))


def prepared(name: str, *preparation: str, flags=PLAN):
    """Returns the step that prepares `data`, after which the recipe plans its tables."""

    def apply(folder):
        status, errors = run(preparation)
        assert status == 0, errors
        return recipe(name, "data", *flags)

    return apply


def encoded(name: str = "data", *others: str):
    """Returns what writes the data set `name`, and data sets next to it."""

    def prepare(folder):
        (folder / "rows.csv").write_text(ROWS)
        data_set = folder.parent / "data_of_remedies"
        if not data_set.exists():
            command = ("transcode", "--input=rows.csv", "--label=click", "--split=0.8,0.1,0.1")
            assert run([*command, f"--output={data_set}"])[0] == 0
        for each in (name, *others):
            shutil.copytree(data_set, folder / each, dirs_exist_ok=True)

    return prepare


def interactions(folder):
    (folder / "log.csv").write_text(LOG)
    command = ("transcode", "--input=log.csv", "--user=person", "--item=thing")
    assert run([*command, "--output=data"])[0] == 0


def renamed_spec(folder):
    encoded()(folder)
    (folder / "data/feature_spec.yaml").rename(folder / "data/mine.yaml")


def reviews(folder):
    assert generate_reviews([f"--output={folder / 'logs'}", "--reviews=2000"]) == 0


def parquet_histories(folder):
    """Rows as NVIDIA's preparation of SIM writes them."""
    rows = {"label": [0, 1], "user_id": [1, 2], "item_id": [2, 3], "cat_id": [1, 1]}
    for split in ("train", "test"):
        (folder / "histories" / split).mkdir(parents=True)
        columns = {name: pa.array(values * 40) for name, values in rows.items()}
        for name in ("item_id_h", "cat_id_h", "item_id_n", "cat_id_n"):
            columns[name] = pa.array([[1, 1], [1, 1]] * 40)
        pq.write_table(pa.table(columns), folder / "histories" / split / "part.0.parquet")
    cardinalities = [{"name": n, "value": 9} for n in ("user_id", "item_id", "cat_id")]
    metadata = {"max_history": 12, "cardinalities": cardinalities}
    (folder / "histories/metadata.json").write_text(json.dumps(metadata))


RAW = [
    Remedy(
        "a table for dlrm.py", written("shop.csv", ROWS), recipe("dlrm", "shop.csv"), "got a table",
        "python -m preproc.transcode --input shop.csv --label COLUMN --split 0.8,0.1,0.1 --output "
        "DATA",
        prepared("dlrm", "transcode", "--input=shop.csv", "--label=click", "--split=0.8,0.1,0.1",
                 "--output=data"),
    ),
    Remedy(
        "a table for ncf.py", written("log.csv", LOG), recipe("ncf", "log.csv"), "got a table",
        "preproc.transcode --input log.csv --user COLUMN --item COLUMN --split 0.8,0.1,0.1",
        prepared("ncf", "transcode", "--input=log.csv", "--user=person", "--item=thing",
                 "--split=0.8,0.1,0.1", "--output=data"),
    ),
    Remedy(
        "a table for sim.py", written("log.csv", LOG), recipe("sim", "log.csv"), "got a table",
        "preproc.histories --interactions log.csv --user_column COLUMN "
        "--item_column COLUMN --time_column COLUMN --output DATA",
        prepared("sim", "histories", "--interactions=log.csv",
                 "--user_column=person", "--item_column=thing", "--time_column=when",
                 "--output=data"),
    ),
    Remedy(
        "reviews for sim.py", reviews, recipe("sim", "logs"), "got reviews",
        "preproc.amazon_books --amazon_dataset_path logs --output DATA",
        prepared("sim", "amazon_books", "--amazon_dataset_path=logs", "--output=data"),
    ),
    Remedy(
        "Parquet files for sim.py", parquet_histories, recipe("sim", "histories"),
        "got Parquet files of histories",
        "preproc.amazon_books.parquet_to_tfrecord --amazon_dataset_path histories "
        "--tfrecord_output_dir DATA",
        prepared("sim", "parquet_to_tfrecord", "--amazon_dataset_path=histories",
                "--tfrecord_output_dir=data", flags=(*PLAN, "--model_type=din")),
    ),
]  # fmt: skip
PATHS = [
    Remedy(
        "the feature spec of a data set", encoded(), recipe("dlrm", "data/feature_spec.yaml"),
        "got its feature spec", "give its folder, data", then(*recipe("dlrm", "data")),
    ),
    Remedy(
        "a data set's name with a slip", encoded("clicks"), recipe("dlrm", "click"),
        "does not exist", "did you mean 'clicks'?", then(*recipe("dlrm", "clicks")),
    ),
    Remedy(
        "a part of a data set", encoded(), recipe("dlrm", "data/encoder"),
        "got a part of a data set", "give ", then(*recipe("dlrm", "data")),
    ),
    Remedy(
        "a folder of data sets", encoded("one", "two"), recipe("dlrm", "."),
        "a folder that has data sets in it", "give one of them, one, two",
        then(*recipe("dlrm", "two")),
    ),
    Remedy(
        "a feature spec of another name", renamed_spec, recipe("dlrm", "data"),
        "whose feature spec has another name", "add --feature_spec mine.yaml",
        then(*recipe("dlrm", "data", "--feature_spec=mine.yaml", *PLAN)),
    ),
    Remedy(
        "an empty folder", lambda folder: (folder / "data").mkdir(), recipe("dlrm", "data"),
        "got an empty folder", "give the --output folder of a preparation, or repeat it",
        lambda folder: encoded()(folder),
    ),
    Remedy(
        "a folder of something else", written("data/notes.md", "notes"), recipe("dlrm", "data"),
        "a folder without feature_spec.yaml, which has notes.md", "such as preproc.transcode",
        lambda folder: encoded("clicks")(folder) or recipe("dlrm", "clicks"),
    ),
    Remedy(
        "clicks for ncf.py", encoded(), recipe("ncf", "data"), "got one of features and labels",
        "train dlrm.py or dcnv2.py on it", then(*recipe("dcnv2", "data")),
    ),
    Remedy(
        "clicks for sim.py", encoded(), recipe("sim", "data"), "got one of features and labels",
        "train dlrm.py or dcnv2.py on it, or prepare the raw data for sim.py",
        then(*recipe("dlrm", "data")),
    ),
    Remedy(
        "interactions for dlrm.py", interactions, recipe("dlrm", "data"),
        "got one of users and items", "train ncf.py on it", then(*recipe("ncf", "data")),
    ),
    Remedy(
        "raw rows to describe", written("shop.csv", ROWS), ("describe", "shop.csv"), "got a table",
        "preproc.transcode --input shop.csv --label",
        lambda folder: encoded()(folder) or ("describe", "data"),
    ),
    Remedy(
        "raw rows as the known data set", written("shop.csv", ROWS),
        ("transcode", "--input=shop.csv", "--vocabulary=shop.csv", "--output=new"),
        "--vocabulary shop.csv: expected the folder of a data set, got a table",
        "preproc.transcode --input shop.csv",
        lambda folder: encoded()(folder)
        or ("transcode", "--input=shop.csv", "--vocabulary=data", "--output=new"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", [*RAW, *PATHS], ids=lambda case: case.cause)
def test_remedies(case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)


@pytest.mark.parametrize("change", ["absent", "old"])
def test_data_set_of_an_older_version(change, tmp_path, monkeypatch):
    """Its raw rows are encoded again, and new rows by that."""

    def prepare(folder):
        encoded()(folder)
        file = folder / "data/encoder/encoder.json"
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"version": 0}))
        if change == "absent":
            file.unlink()

    words = {
        "absent": ("the data set has no encoder", "copy it from the original data set"),
        "old": ("expected version 1, got 0", "prepare the raw rows again, or use the version"),
    }
    command = ("transcode", "--input=rows.csv", "--output=new")

    def again(folder):
        encoded("again")(folder)
        return (*command, "--vocabulary=again")

    case = Remedy(change, prepare, (*command, "--vocabulary=data"), *words[change], again)
    check(case, tmp_path, monkeypatch)
