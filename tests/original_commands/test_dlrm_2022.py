"""Commands of the document of DLRM of 2022, on generated clicks."""

import pytest

from runtime import checkpoint
from tests.original_commands import extraction
from tests.original_commands.commands import CTR_SIZES, clone, read_log


@pytest.fixture
def dlrm(commands, clicks, tmp_path):
    """The test's commands; /data/dlrm is the folder of the data set."""
    (tmp_path / "dlrm").mkdir()
    for path in clicks.iterdir():
        (tmp_path / "dlrm" / path.name).symlink_to(path)
    commands.variables |= {
        "data": tmp_path,
        "results": tmp_path / "results",
        "sizes": CTR_SIZES,
    }
    return commands


def summary(tmp_path):
    """Returns the results of the last run."""
    return read_log(tmp_path / "results/log.json")[-1][1]


def test_clone(commands, tmp_path):
    clone(commands, tmp_path, 9, 5, 6)
    assert (tmp_path / "data").is_dir()


def test_help(commands):
    text = commands.run(24)
    for flag in (
        "--dataset_path",
        "--evals_per_epoch",
        "--restore_checkpoint_path",
        "--run_eagerly",
    ):
        assert flag in text


def test_feature_spec_of_csv_files(commands):
    """The block has lost its indentation; it is that of SIM's document, whose test reads it."""
    block = commands.block(4)
    other = extraction.entries(extraction.document_path("001").read_text())[0]
    lines = [[line.strip() for line in text.split("\n") if line.strip()] for text in (block, other)]
    assert lines[0] == lines[1]


@pytest.mark.long
def test_one_process(dlrm, tmp_path):
    """Two trainings into one folder, evaluation and inference of the second one."""
    model = tmp_path / "dlrm/checkpoint/dlrm"
    for number in (17, 18):
        dlrm.run(number)
        trained = summary(tmp_path)
        assert trained["throughput"] > 0 and 0 < trained["auc"] < 1
    assert len(list(model.glob("*-step-*"))) == len(list(model.glob("earlier-1/*-step-*"))) == 1
    assert checkpoint.describe(checkpoint.resolve(model)).state["finished"]
    dlrm.run(18, append=dlrm.text(22))
    assert summary(tmp_path)["auc"] == pytest.approx(trained["auc"], abs=1e-6)
    dlrm.run(35)
    assert summary(tmp_path)["mean_inference_throughput"] > 0


@pytest.mark.long
def test_several_processes(dlrm, tmp_path):
    for number in (2, 19, 20, 21):
        dlrm.run(number)
        trained = summary(tmp_path)
        assert trained["throughput"] > 0 and 0 < trained["auc"] < 1
    output = dlrm.run(23)
    assert summary(tmp_path)["auc"] == pytest.approx(trained["auc"], abs=1e-3)
    assert (tmp_path / "dlrm/checkpoint/dlrm/earlier-2").is_dir(), output


@pytest.mark.long
def test_appended_flags(dlrm, tmp_path):
    folders = f"--dataset_path {tmp_path}/dlrm --run_dir {tmp_path}/results"
    command = f"python -u main.py {folders} {CTR_SIZES}"
    for number, steps in ((33, 3), (34, 2), (36, 8)):
        dlrm.shell(f"{command} {dlrm.text(number)}")
        assert summary(tmp_path)["steps"] == steps


def largest_table(spec):
    """Returns the most ids of a feature."""
    return max(feature.get("cardinality", 0) for feature in spec["feature_spec"].values())


@pytest.mark.long
def test_preparation(prepare):
    """A higher threshold makes smaller tables."""
    sizes = {
        threshold: largest_table(prepare(*numbers, threshold=threshold))
        for threshold, numbers in {0: [1], 3: [11, 12], 15: [11, 14]}.items()
    }
    assert sizes[0] > sizes[3] > sizes[15] > 1
    for numbers, threshold in (((11, 13), 15), ((11, 15), 0), ((25, 26), 15)):
        assert largest_table(prepare(*numbers, threshold=threshold)) == sizes[threshold]


@pytest.mark.long
def test_variables_of_run_spark(commands, criteo_folder, tmp_path):
    commands.variables["data"] = criteo_folder
    append = "; export USE_FREQUENCY_LIMIT; preproc/run_spark_cpu.sh"
    options = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "PYTHON": ""}
    commands.run(27, 28, 29, 30, 31, 32, append=append, **options)
    text = (criteo_folder / "output/feature_spec.yaml").read_text()
    assert "frequency_threshold: 15" in text
