"""Fixtures of the tests of the documents' commands."""

import shutil

import pytest
import yaml

from dataloading.engines import environment
from docs import original_commands
from preproc.criteo.generate_logs import generate_day
from tests.forked_python import install_shim
from tests.original_commands.commands import QUOTED_ROOT, ROOT, STAND_INS, Commands


@pytest.fixture(scope="session")
def programs(tmp_path_factory, forked_python):
    """Folder with `python`, which starts fast, and stand-ins of programs that are absent."""
    folder = tmp_path_factory.mktemp("programs") / "bin"
    install_shim(folder, forked_python)
    texts = {name: text for name, text in STAND_INS.items() if shutil.which(name) is None}
    # The real one first starts an interpreter that imports TensorFlow, in each of many starts.
    launcher = f'#!/bin/sh\nexec python {QUOTED_ROOT}/tests/ranks/horovodrun.py --gloo "$@"\n'
    for name, text in {**texts, "horovodrun": launcher}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def commands(request, programs):
    """Commands that the table assigns to the test, which has to run all of them."""
    test = f"{request.path.relative_to(ROOT)}::{request.node.originalname}"
    rows = [row for row in original_commands.read_commands() if row.test == test]
    assert rows, f"no command is assigned to {test}"
    failures = request.session.testsfailed
    commands = Commands(rows[0].document, rows, programs, {})
    yield commands
    if request.session.testsfailed == failures and commands.used:
        assert commands.used == set(commands.rows)


@pytest.fixture(scope="session")
def clicks(tmp_path_factory, run_script):
    """A data set of 26 categorical and 13 numerical features, 8 batches of 256 rows."""
    folder = tmp_path_factory.mktemp("clicks") / "rows"
    sizes = ("--rows", 2048, "--validation_rows", 1, "--test_rows", 512)
    cardinalities = ",".join(str(10 * number) for number in range(1, 27))
    command = ("-m", "dataloading.synthetic", "--output", folder, *sizes)
    done = run_script(*command, "--cardinalities", cardinalities, "--num_numerical", 13)
    assert done.returncode == 0, done.stderr
    # The documents have two splits: what a training evaluates is the test split.
    spec = yaml.safe_load((folder / "feature_spec.yaml").read_text())
    del spec["source_spec"]["validation"]
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    return folder


@pytest.fixture(scope="session")
def criteo_folder(tmp_path_factory):
    """A folder that stands for /data, with three days of generated Criteo logs in criteo."""
    if not environment.is_installed("pyspark"):
        pytest.skip("no Spark: run `make engines`")
    folder = tmp_path_factory.mktemp("criteo_logs")
    (folder / "criteo").mkdir()
    for day in range(3):
        generate_day(folder / f"criteo/day_{day}", 600, [8, day])
    return folder


@pytest.fixture
def prepare(commands, criteo_folder, tmp_path):
    """Returns a function that runs commands of the preparation and returns the data set."""
    variables = {
        "PYTHON": "",  # that of Spark
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "download_dir": str(criteo_folder / "criteo"),
        "spark_output_path": str(tmp_path / "spark"),
        "TOTAL_CORES": "2",
        "TOTAL_MEMORY": "4",
    }

    def run(*numbers, threshold):
        output = tmp_path / f"threshold_{threshold}"  # where it is complete, nothing is done
        few = "--spark_conf spark.sql.shuffle.partitions=3"
        commands.run(*numbers, append=few, final_output_dir=str(output), **variables)
        spec = yaml.safe_load((output / "feature_spec.yaml").read_text())
        assert {"train", "test"} <= set(spec["source_spec"])
        return spec

    return run
