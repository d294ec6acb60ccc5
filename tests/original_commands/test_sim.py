"""Commands of the document of SIM, on generated reviews."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml

from dataloading.spec.feature_spec import FeatureSpec
from preproc.amazon_books import generate_reviews
from tests.original_commands.commands import clone, read_log
from tests.recipes.test_sim_nvidia import (
    CATEGORIES,
    COLUMNS,
    HISTORIES,
    ITEMS,
    LENGTH,
    ROWS,
    USERS,
    example,
    samples,
)

PREBATCH = {"PREBATCH_TRAIN_SIZE": "16", "PREBATCH_TEST_SIZE": "16"}
LOSSES = {"classification_loss", "dien_aux_loss", "total_loss"}
METRICS = {"train_auc", "test_auc", "train_loss", "test_loss"}
LATENCIES = {"latency_mean", "latency_p90", "latency_p95", "latency_p99"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the raw files of Amazon Books in amazon_books_2014."""
    folder = tmp_path_factory.mktemp("sim")
    raw = folder / "amazon_books_2014"
    flags = ("--users", "20", "--items", "50", "--reviews", "700", "--output", str(raw))
    assert generate_reviews.main(list(flags)) == 0
    return folder


@pytest.fixture
def sim(commands, folder, tmp_path):
    """The test's commands; other outputs than data sets are in a folder of the test."""
    commands.variables |= {"data": folder, "results": tmp_path / "results", "batch": 64}
    return commands


@pytest.fixture
def paths(folder, tmp_path):
    """Variables which a user of the document sets."""
    variables = {"PARQUET_PATH": tmp_path / "parquet", "TF_RECORD_PATH": tmp_path / "records"}
    variables["RAW_DATASET_PATH"] = folder / "amazon_books_2014"
    return {name: str(path) for name, path in variables.items()}


def keys_of(log):
    """Returns the keys of the entries by length of `step`: summary, epoch, step."""
    return {
        length: set().union(*(data for step, data in log if len(step) == length))
        for length in range(3)
    }


def test_clone(sim, tmp_path):
    clone(sim, tmp_path, 2, 3)


def test_help(sim):
    assert "python main.py --model dlrm|dcnv2|sim|ncf" in sim.run(12)
    text = sim.run(12, append="--model sim")
    for flag in ("--model_type", "--prebatch_train_size", "--results_dir", "--affinity"):
        assert flag in text


@pytest.mark.long
def test_quick_start(sim, paths, tmp_path):
    raw = sim.run(6, 7, 8, 9, **{**paths, "RAW_DATASET_PATH": "unset"})
    assert "amazon_books_2014/meta_Books.json" in raw
    records = tmp_path / "records"
    assert (tmp_path / "parquet/metadata.json").is_file()
    assert {path.name for path in records.iterdir()} >= {
        *("feature_spec.yaml", "train.tfrecord", "test.tfrecord")
    }
    training = sim.run(10, **paths)
    log = read_log(tmp_path / "results/log.json")
    keys = keys_of(log)
    assert keys[2] >= {*LOSSES, "samples/s"}
    assert keys[1] >= {"throughput", "time", *METRICS, *LATENCIES}
    assert keys[0] >= {"time_to_train", *METRICS}
    assert [step for step, _ in log if len(step) == 1] == [[0], [1], [2]]
    assert "DLL " in training
    sim.run(11, **paths)
    keys = keys_of(read_log(tmp_path / "results/log.json"))
    assert keys[2] >= {"samples/s"} and not keys[1]
    assert keys[0] >= {"throughput", "time", *LATENCIES}
    form = {"timestamp", "datetime", "elapsedtime", "type", "step", "data"}
    for number in (20, 21, 22):
        block = json.loads(sim.block(number).removeprefix("DLLL ").replace("...", '"..."'))
        assert set(block) == form
        assert any(len(step) == len(block["step"]) for step, _ in log)


@pytest.mark.long
def test_prebatched_records(sim, paths, tmp_path):
    """The document has --prebatch_train_size twice, and means --prebatch_test_size."""
    sim.run(13, 14, **paths, **PREBATCH)
    spec = yaml.safe_load((tmp_path / "records/feature_spec.yaml").read_text())
    assert spec["metadata"]["prebatch_train_size"] == 16
    assert (tmp_path / "records/remainder_train.tfrecord").is_file()
    sim.run(15, **paths, **PREBATCH)
    assert keys_of(read_log(tmp_path / "results/log.json"))[0] >= {"time_to_train", *METRICS}


@pytest.mark.long
def test_benchmarks(sim, paths, tmp_path):
    prepare = (
        "python preprocessing/sim_preprocessing.py --amazon_dataset_path ${RAW_DATASET_PATH} "
        "--output_path ${PARQUET_PATH}; python preprocessing/parquet_to_tfrecord.py "
        "--amazon_dataset_path ${PARQUET_PATH} --tfrecord_output_dir ${TF_RECORD_PATH} "
        "--prebatch_train_size 16 --prebatch_test_size 16"
    )
    sim.shell(prepare, **paths)
    for number in (23, 24, 25, 26):
        sim.run(number, **paths, **PREBATCH)
        (summary,) = (data for step, data in read_log(tmp_path / "results/log.json") if not step)
        assert set(summary) >= {"throughput", *LATENCIES} and summary["throughput"] > 0


def test_feature_spec_of_csv_files(sim, tmp_path):
    content = yaml.safe_load(sim.block(1))
    spec = FeatureSpec.from_dict(content, tmp_path)
    assert [chunk.files for chunk in spec.source_spec["train"]] == [
        *(("train_data_0_0.csv", "train_data_0_1.csv"), ("train_data_1.csv",))
    ]
    assert spec.feature_spec["item_id"]["cardinality"] == 856
    assert list(spec.channel_spec) == [  # label_ch is a name of label
        *("numeric_inputs", "categorical_user_inputs", "categorical_item_inputs", "label")
    ]


def small_sizes(name):
    """Returns the cardinality of a feature, whose name begins with that of the table."""
    return {"u": USERS, "i": ITEMS, "c": CATEGORIES}[name[0]]


def train(sim, records, tmp_path):
    """Trains SIM on records for an epoch; returns the summary."""
    sim.shell(
        f"python main.py --model sim --dataset_dir {records} --epochs 1 --global_batch_size 64 "
        f"--long_seq_length 8 --results_dir {tmp_path}/results"
    )
    return read_log(tmp_path / "results/log.json")[-1][1]


@pytest.mark.long
def test_parquet_of_another_data_set(sim, tmp_path):
    """The folder and metadata.json of the document, with small cardinalities."""
    layout = [line.split(":")[0].strip() for line in sim.block(16).split("\n")]
    assert layout[:4] == ["DATASET", "metadata.json", "test", "part.0.parquet"]
    metadata = json.loads(sim.block(17))
    for pair in metadata["cardinalities"]:
        pair["value"] = small_sizes(pair["name"])
    dataset = tmp_path / "dataset"
    for seed, (split, rows) in enumerate(ROWS.items()):
        (dataset / split).mkdir(parents=True)
        columns = zip(*samples(rows, seed), strict=True)
        table = pa.table(dict(zip((*COLUMNS, *HISTORIES), map(list, columns), strict=True)))
        for part, name in enumerate(name for name in layout if name.startswith("part.")):
            if part < 2:
                half = table.slice(part * rows // 2, rows // 2)
                pq.write_table(half, dataset / split / name)
    (dataset / "metadata.json").write_text(json.dumps(metadata))
    sim.shell(
        "python preprocessing/parquet_to_tfrecord.py --max_seq_len 12 "
        f"--amazon_dataset_path {dataset} --tfrecord_output_dir {tmp_path}/records"
    )
    assert 0 < train(sim, tmp_path / "records", tmp_path)["test_auc"] <= 1


def test_feature_spec_of_records(sim, tmp_path):
    """The document's feature spec, with small cardinalities and histories."""
    layout = [line.strip() for line in sim.block(18).split("\n")]
    assert layout == ["TF_RECORD_PATH:", "feature_spec.yaml", "test.tfrecord", "train.tfrecord"]
    content = yaml.safe_load(sim.block(19))
    for name, feature in content["feature_spec"].items():
        if "cardinality" in feature:
            feature["cardinality"] = small_sizes(name)
        if "dimensions" in feature:
            feature["dimensions"] = [LENGTH]
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(content))
    for seed, (split, rows) in enumerate(ROWS.items()):
        (chunk,) = content["source_spec"][split]
        with tf.io.TFRecordWriter(str(tmp_path / chunk["files"][0])) as writer:
            for sample in samples(rows, seed):
                writer.write(example(chunk["features"], sample))
    assert 0 < train(sim, tmp_path, tmp_path)["test_auc"] <= 1
