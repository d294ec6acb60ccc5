"""Scripts in original/: commands that they start, and exit codes."""

import os
import subprocess
import sys

import pytest

CRITEO = "-m preproc.criteo --engine spark --input {} --output {} --frequency_threshold {}"
DEFAULTS = ("/data/dlrm/criteo", "/data/dlrm/binary_dataset")


@pytest.fixture
def shell(root, tmp_path):
    """Returns a function that runs a script; `echo` stands for Python and for Horovod."""
    (tmp_path / "horovodrun").symlink_to("/bin/echo")

    def run(script, *arguments, code=0, **variables):
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "echo"}
        done = subprocess.run(
            [root / "original" / script, *map(str, arguments)],
            env={**os.environ, **path, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    ("command", "variables", "expected"),
    [
        ("prepare_dataset.sh CPU 3 --days 0-1", {}, CRITEO.format(*DEFAULTS, "3 --days 0-1")),
        (
            "prepare_dataset.sh CPU 15,5:30",
            {"download_dir": "a", "final_output_dir": "b"},
            CRITEO.format("a", "b", "15,5:30"),
        ),
        (
            "run_spark_cpu.sh",
            {"INPUT_PATH": "a", "OUTPUT_PATH": "b", "TOTAL_CORES": "2", "TOTAL_MEMORY": "4"},
            CRITEO.format("a", "b", "15 --threads 2 --memory_limit 4GB"),
        ),
        *(
            ("run_spark_cpu.sh", {"USE_FREQUENCY_LIMIT": limit}, CRITEO.format(*DEFAULTS, number))
            for limit, number in (("1", 15), ("8", 8))
        ),
    ],
)
def test_spark_on_cpus(shell, command, variables, expected):
    script, *arguments = command.split()
    assert shell(f"dlrm/preproc/{script}", *arguments, **variables) == expected + "\n"


def test_spark_on_gpus(shell):
    """Settings divide the machine among its GPUs; variables replace those of a DGX-2."""
    sizes = {"TOTAL_CORES": "64", "TOTAL_GPUS": "8", "TOTAL_MEMORY": "400"}
    output = shell("dlrm/preproc/prepare_dataset.sh", "DGX2", 3, RAPIDS_JAR=sys.executable, **sizes)
    assert output.startswith(CRITEO.format(*DEFAULTS, 3))
    for setting in (
        "spark.executor.cores=8",
        "spark.executor.memory=25600m",
        "spark.task.resource.gpu.amount=0.125",
        "spark.worker.resource.gpu.amount=8",
        f"spark.jars={sys.executable}",
        "--master local-cluster[1,64,409600]",
    ):
        assert setting in output
    assert "--threads" not in output


def test_refusals(shell):
    assert "usage" in shell("dlrm/preproc/prepare_dataset.sh", "GPU", 15, code=2)
    assert "usage" in shell("dlrm/preproc/prepare_dataset.sh", "CPU", code=2)
    assert "RAPIDS_JAR" in shell("dlrm/preproc/run_spark_gpu.sh", code=2, RAPIDS_JAR="")


def test_replaced_scripts(run_script):
    for name in ("spark_data_utils", "parquet_to_binary", "split_dataset"):
        done = run_script(f"original/dlrm/preproc/{name}.py")
        assert done.returncode == 1 and "python -m preproc.criteo" in done.stderr


def test_days_of_criteo(shell, tmp_path):
    for day in range(24):
        (tmp_path / f"day_{day}.gz").write_text("x")
    assert shell("dlrm/preproc/verify_criteo_downloaded.sh", tmp_path) == ""
    (tmp_path / "day_23.gz").unlink()
    assert "day_23 is" in shell("dlrm/preproc/verify_criteo_downloaded.sh", tmp_path, code=1)


def test_model_of_sim(shell, root):
    flags = ("--data_path", "a b", "--gpus", 2, "--amp", 1, "--xla", 0, "--batch_size", 8)
    *_, words = shell("sim/scripts/run_model.sh", *flags).partition("sim.py ")
    assert words == "--drop_remainder --dataset_dir=a b --amp=1 --xla=0 --global_batch_size=8\n"
    shell("sim/scripts/run_model.sh", "--amp", code=1)


def test_raw_files_of_sim(shell, tmp_path):
    (tmp_path / "meta_Books.json").write_text("{}")
    (tmp_path / "reviews_Books.json.gz").write_bytes(b"no gzip")
    output = shell("sim/scripts/download_amazon_books_2014.sh", tmp_path, code=1)
    assert "meta_Books.json: found" in output and "reviews_Books.json: missing" in output
    (tmp_path / "reviews_Books.json").write_text("{}")
    shell("sim/scripts/download_amazon_books_2014.sh", tmp_path)


def test_archives_of_ncf(shell, tmp_path):
    for script in ("prepare_dataset.sh", "download_dataset.sh"):
        assert "movielens/ml-1m.zip" in shell(f"ncf/{script}", "ml-1m", tmp_path, code=1)
    (tmp_path / "ml-1m.zip").write_text("x")
    assert "FAILED" in shell("ncf/verify_dataset.sh", "ml-1m", tmp_path, code=1)
