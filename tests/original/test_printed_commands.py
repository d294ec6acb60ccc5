"""Commands that the documents of NVIDIA's recipes print, run in original/ on small data.

A step is a command as printed and what it leaves: a text in its output, or keys of the summary in
the run's log. `HERE` has what is replaced in all commands: paths, sizes, numbers of processes.
docs/reference/original_commands.md lists the same commands.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from preproc.amazon_books import generate_reviews
from preproc.criteo.generate_logs import generate_day
from preproc.engines import environment
from preproc.movielens.generate_ratings import RatingSizes, generate
from tests.forked_python import install_shim

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/original_commands.md"
# Programs that a machine may lack, and what runs in their place there.
STAND_INS = {
    "mpiexec": 'while [ "$1" != -np ]; do shift; done; exec horovodrun "$@"',
    "numactl": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
}
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CTR_SIZES = (
    "--run_dir {results} --preset terabyte --batch_size 256 --valid_batch_size 256 "
    "--embedding_dim 16 --bottom_mlp_dims 32,16 --top_mlp_dims 32,1"
)
NCF_SIZES = "--checkpoint_dir {data}/checkpoints --run_dir {results} --epochs 1 --batch_size 1024"
MODEL = "model.pth" if importlib.util.find_spec("torch") else "best"  # what a training writes
SHORT = "--benchmark_steps 3 --benchmark_warmup_steps 1"
# Recipe -> pairs of a printed text and what stands for it, replaced in this order.
HERE = {
    "dlrm": (
        ("-np 8 -H localhost:8", "-np 2 -H localhost:2"),
        ("-np 16 -H localhost:16", "-np 2 -H localhost:2"),
        ("/data/", "{data}/"),
        ("main.py --dataset_path", f"main.py {CTR_SIZES} --dataset_path"),
        ("dlrm.py --dataset_path", f"dlrm.py {CTR_SIZES} --dataset_path"),
        ("dcnv2.py --dataset_path", f"dcnv2.py {CTR_SIZES} --dataset_path"),
        ("--max_steps 1000", "--max_steps 3"),
        (
            "--dataset_type synthetic",
            "--dataset_type synthetic --synthetic_dataset_train_batches 2",
        ),
        ("<checkpoint_path>", "{data}/dlrm/checkpoint/dlrm"),
        ("prepare_dataset.sh DGX2", "prepare_dataset.sh CPU"),  # which needs no GPUs
        ("TOTAL_CORES=80", "TOTAL_CORES=2"),
        ("TOTAL_MEMORY=800", "TOTAL_MEMORY=4"),
    ),
    "sim": (
        ("/data/", "{data}/"),
        ("2014.sh", "2014.sh {data}/amazon_books_2014"),
        ("-np ${GPU}", "-np 2"),
        ("--gpus ${GPU}", "--gpus 1 --results_dir {results} --batch_size 64"),
        ("main.py --dataset_dir", "main.py --results_dir {results} --dataset_dir"),
        ("--global_batch_size 131072", "--global_batch_size 64"),
        ("--benchmark 1", f"--benchmark 1 {SHORT}"),
        ("--benchmark --prebatch", f"--benchmark {SHORT} --prebatch"),
    ),
    "ncf": (
        ("python -m torch.distributed.launch --nproc_per_node=8", "horovodrun -np 2 python"),
        ("python -m torch.distributed.launch --nproc_per_node=1", "horovodrun -np 1 python"),
        ("/data/checkpoints/model.pth", f"{{data}}/checkpoints/{MODEL}"),
        (" --data /data/", f" {NCF_SIZES} --data {{data}}/"),
        ("./prepare_dataset.sh ml-1m", "./prepare_dataset.sh ml-1m {data}"),
        ("./prepare_dataset.sh;", "./prepare_dataset.sh ml-20m {data};"),
    ),
    "embeddings": (
        ("/workspace/", "{data}/"),
        ("https://github.com/NVIDIA-Merlin/distributed-embeddings.git", "{root} repository"),
        ("install artifacts", "install --no-deps --target {data}/installed artifacts"),
        ("--batch_size 65536", "--batch_size 64"),
        ("--model tiny", "--model criteo"),
        ("-np 4", "-np 2"),
    ),
}
LAUNCH = (
    "horovodrun -np {0} -H localhost:{0} --mpi-args=--oversubscribe numactl --interleave=all -- "
)
ONE, EIGHT, SIXTEEN = (LAUNCH.format(number) + "python -u " for number in (1, 8, 16))
MPI = "mpiexec --allow-run-as-root --bind-to socket -np ${GPU} python "
TORCH = "python -m torch.distributed.launch --nproc_per_node="
SAVE = "--save_checkpoint_path /data/dlrm/checkpoint/dlrm"
RESTORE = "--restore_checkpoint_path /data/dlrm/checkpoint/dlrm"
SLICES = "--column_slice_threshold 5000000000"
SIM = "--dataset_dir ${TF_RECORD_PATH} --mode"
PREBATCHES = (
    "--prebatch_train_size ${PREBATCH_TRAIN_SIZE} --prebatch_test_size ${PREBATCH_TEST_SIZE}"
)
TRAINED = {"auc", "throughput"}
LOSSES = {"train_auc", "test_auc", "train_loss", "test_loss", "time_to_train"}
LATENCIES = {"throughput", "latency_mean", "latency_p90", "latency_p95", "latency_p99"}
BENCHMARK = r"Initial loss: \d\.\d{3}\n(.*\n)*.*Benchmark step \[50/100\](.*\n)*.*Iteration time"
PREPARE_SIM = (
    (
        "python preprocessing/sim_preprocessing.py --amazon_dataset_path ${RAW_DATASET_PATH} "
        "--output_path ${PARQUET_PATH}",
        "",
    ),
)


class Case(NamedTuple):
    """Steps that share their files.

    Attributes:
        recipe: a key of `HERE`; the working folder is that under original/.
        steps: (command, text or keys).
        is_long: only `make test-all` runs it.
    """

    recipe: str
    steps: tuple[tuple[str, str | set[str]], ...]
    is_long: bool = True


CASES = {
    "flags of DLRM": Case(
        "dlrm",
        (
            ("python main.py --help", "--dataset_path(.*\n)*.*--restore_checkpoint_path"),
            ("python dlrm.py --help", "--dataset_path(.*\n)*.*--restore_checkpoint_path"),
        ),
        is_long=False,
    ),
    "DLRM in one process": Case(
        "dlrm",
        (
            (ONE + f"main.py --dataset_path /data/dlrm/ --amp --xla {SAVE}", TRAINED),
            (ONE + f"main.py --dataset_path /data/dlrm/ --xla {SAVE}", TRAINED),
            (ONE + f"main.py --dataset_path /data/dlrm/ --xla {RESTORE} --mode eval", {"auc"}),
            (
                ONE + "main.py --dataset_path /data/dlrm/ --amp "
                "--restore_checkpoint_path <checkpoint_path> --mode inference",
                {"mean_inference_throughput"},
            ),
            ("python -u main.py --dataset_path /data/dlrm/ --max_steps 1000", {"auc"}),
            ("python -u main.py --dataset_path /data/dlrm/ --dataset_type synthetic", {"auc"}),
            ("python -u main.py --dataset_path /data/dlrm/ --cpu", {"auc"}),
        ),
    ),
    "DLRM in several processes": Case(
        "dlrm",
        (
            (EIGHT + "main.py --dataset_path /data/dlrm/ --amp --xla", TRAINED),
            (EIGHT + f"main.py --dataset_path /data/dlrm/ --amp --xla {SAVE}", TRAINED),
            (SIXTEEN + f"main.py --dataset_path /data/dlrm/ --amp --xla {SLICES} {SAVE}", TRAINED),
            (EIGHT + f"main.py --dataset_path /data/dlrm/ --amp --xla {SLICES} {SAVE}", TRAINED),
            (
                EIGHT + f"main.py --dataset_path /data/dlrm/ --amp --xla {RESTORE} --mode eval",
                {"auc"},
            ),
            (EIGHT + "dlrm.py --dataset_path /data/dlrm/ --amp --xla", TRAINED),
            (EIGHT + "dcnv2.py --dataset_path /data/dlrm/ --amp --xla", TRAINED),
        ),
    ),
    "preparation of Criteo": Case(
        "dlrm",
        (
            ("cd preproc; ./prepare_dataset.sh CPU 15", ""),
            ("cd preproc; final_output_dir=/data/dlrm/fl3 ./prepare_dataset.sh DGX2 3", ""),
            ("cd preproc; final_output_dir=/data/dlrm/fl0 ./prepare_dataset.sh DGX2 0", ""),
            (
                "export SPARK_LOCAL_DIRS=/data/spark-tmp; export INPUT_PATH=/data/dlrm/criteo; "
                "export OUTPUT_PATH=/data/output; export TOTAL_CORES=80; export TOTAL_MEMORY=800; "
                "export USE_FREQUENCY_LIMIT=15; preproc/run_spark_cpu.sh",
                "",
            ),
        ),
    ),
    "flags of SIM": Case(
        "sim", (("python main.py --help", r"--model dlrm\|dcnv2\|sim\|ncf"),), is_long=False
    ),
    "SIM": Case(
        "sim",
        (
            ("scripts/download_amazon_books_2014.sh", "meta_Books.json: found"),
            *PREPARE_SIM,
            (
                "python preprocessing/parquet_to_tfrecord.py --amazon_dataset_path "
                "${PARQUET_PATH} --tfrecord_output_dir ${TF_RECORD_PATH}",
                "",
            ),
            (
                MPI + f"main.py {SIM} train --model_type sim --embedding_dim 16 --drop_remainder "
                "--optimizer adam --lr 0.01 --epochs 3 --global_batch_size 131072 --amp",
                LOSSES,
            ),
            (
                MPI + f"main.py {SIM} inference --model_type sim --embedding_dim 16 "
                "--global_batch_size 131072 --amp",
                LATENCIES | {"time"},
            ),
        ),
    ),
    "SIM with prebatched records": Case(
        "sim",
        (
            *PREPARE_SIM,
            (
                "python preprocessing/parquet_to_tfrecord.py --amazon_dataset_path "
                "${PARQUET_PATH} --tfrecord_output_dir ${TF_RECORD_PATH} "
                "--prebatch_train_size ${PREBATCH_TRAIN_SIZE} "
                "--prebatch_train_size ${PREBATCH_TEST_SIZE}",
                "",
            ),
            (
                MPI + f"main.py {SIM} train --model_type sim --embedding_dim 16 --drop_remainder "
                "--optimizer adam --lr 0.01 --epochs 3 --global_batch_size 131072 --amp "
                "--prebatch_train_size ${PREBATCH_TRAIN_SIZE} "
                "--prebatch_train_size ${PREBATCH_TEST_SIZE}",
                LOSSES,
            ),
            (
                "rm -r ${TF_RECORD_PATH}; python preprocessing/parquet_to_tfrecord.py "
                "--amazon_dataset_path ${PARQUET_PATH} --tfrecord_output_dir ${TF_RECORD_PATH} "
                + PREBATCHES,
                "",
            ),
            *(
                (
                    MPI + f"main.py {SIM} {mode} --model_type sim --global_batch_size 131072 "
                    f"{flag}--amp --benchmark {PREBATCHES}",
                    LATENCIES,
                )
                for mode, flag in (("train", "--drop_remainder "), ("inference", ""))
            ),
            (
                "scripts/run_model.sh --data_path ${TF_RECORD_PATH} --gpus ${GPU} --amp 1 "
                f"--benchmark 1 {PREBATCHES}",
                LATENCIES,
            ),
        ),
    ),
    "flags of NCF": Case("ncf", (("python ncf.py --help", "--data"),), is_long=False),
    "NCF on ML-20M": Case(
        "ncf",
        (
            ("./prepare_dataset.sh;", "successfully prepared at: .*/cache/ml-20m"),
            ("./prepare_dataset.sh;", "Using cached preprocessed data"),
            (TORCH + "8 ncf.py --data /data/cache/ml-20m", {"best_accuracy"}),
            (
                TORCH + "8 ncf.py --data /data/cache/ml-20m --mode test "
                "--checkpoint-path /data/checkpoints/model.pth",
                {"hr@10"},
            ),
            (TORCH + "1 ncf.py --data /data/cache/ml-20m --mode test", {"hr@10"}),
            (TORCH + "8 ncf.py --data /data/cache/ml-20m --epochs 5", {"best_train_throughput"}),
        ),
    ),
    "NCF on ML-1M": Case(
        "ncf",
        (
            ("./prepare_dataset.sh ml-1m", "successfully prepared at: .*/cache/ml-1m"),
            (TORCH + "8 ncf.py --data /data/cache/ml-1m", {"best_accuracy"}),
        ),
    ),
    "distributed-embeddings: build": Case(
        "embeddings",
        (
            (
                "cd /workspace/; "
                "git clone https://github.com/NVIDIA-Merlin/distributed-embeddings.git; "
                "cd repository/distributed-embeddings; git submodule update --init --recursive; "
                "make pip_pkg && pip install artifacts/*.whl",
                "",
            ),
            (
                'cd /workspace/; PYTHONPATH=installed python -c "import distributed_embeddings"; '
                "test -f installed/distributed_embeddings/__init__.py",
                "",
            ),
        ),
        is_long=False,
    ),
    "distributed-embeddings: tests": Case(
        "embeddings",
        tuple(
            (f"cd /workspace/distributed-embeddings/tests; python {name}_test.py", r"\d+ passed")
            for name in ("dist_model_parallel", "embedding")
        ),
    ),
    "distributed-embeddings: examples": Case(
        "embeddings",
        (
            *(
                (
                    "cd /workspace/distributed-embeddings/examples/benchmarks/synthetic_models; "
                    f"{launch}python main.py --model tiny --optimizer adagrad --batch_size 65536"
                    + more,
                    BENCHMARK,
                )
                for launch, more in (
                    ("", ""),
                    ("horovodrun -np 4 ", " --column_slice_threshold $((1280*1048576))"),
                )
            ),
            (
                "cd /workspace/distributed-embeddings/examples/dlrm; horovodrun -np 4 python "
                "main.py --batch_size 64 --num_batches 8 --table_sizes 20,10 --embedding_dim 8 "
                "--bottom_mlp_dims 16,8 --top_mlp_dims 16,1",
                "AUC",
            ),
        ),
    ),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory, forked_python):
    """Folder with `python`, which starts fast, and stand-ins of programs that are absent."""
    folder = tmp_path_factory.mktemp("programs") / "bin"
    install_shim(folder, forked_python)
    texts = {name: text for name, text in STAND_INS.items() if shutil.which(name) is None}
    # The real one first starts an interpreter that imports TensorFlow, in each of many starts.
    launcher = ROOT / "tests/ranks/horovodrun.py"
    texts["horovodrun"] = f'exec python {shlex.quote(str(launcher))} --gloo "$@"'
    for name, text in texts.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def write_clicks(folder, run_script):
    """Writes 8 batches of 256 rows, without a validation split, which the documents lack."""
    sizes = ("--rows", 2048, "--validation_rows", 1, "--test_rows", 512, "--num_numerical", 13)
    cardinalities = ",".join(str(10 * number) for number in range(1, 27))
    command = ("-m", "dataloading.synthetic", "--output", folder, *sizes)
    done = run_script(*command, "--cardinalities", cardinalities)
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load((folder / "feature_spec.yaml").read_text())
    del spec["source_spec"]["validation"]
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))


def write_ratings(folder):
    """Writes the archives of both data sets, each in its own format."""
    ratings = generate(folder, RatingSizes(3000, 60, 300), 1).read_text()
    lines = ratings.splitlines()[1:]
    for name, file, text in (
        ("ml-20m", "ratings.csv", ratings),
        ("ml-1m", "ratings.dat", "\n".join(line.replace(",", "::") for line in lines)),
    ):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}/{file}", text)


@pytest.fixture
def data(request, tmp_path, run_script):
    """The folder that stands for /data or /workspace, with the raw data of a case."""
    case = CASES[request.node.callspec.params["name"]]
    folder = tmp_path / "files"
    (folder / "dlrm/criteo").mkdir(parents=True)
    if any("prepare_dataset.sh CPU" in command for command, _ in case.steps):
        if not environment.is_installed("pyspark"):
            pytest.skip("no Spark: run `make engines`")
        for day in range(3):
            generate_day(folder / f"dlrm/criteo/day_{day}", 600, [8, day])
    elif case.recipe == "dlrm" and case.is_long:
        write_clicks(folder / "clicks", run_script)
        for path in (folder / "clicks").iterdir():
            (folder / "dlrm" / path.name).symlink_to(path)
    elif case.recipe == "sim" and case.is_long:
        flags = ("--users", "20", "--items", "50", "--reviews", "700")
        assert generate_reviews.main([*flags, "--output", f"{folder}/amazon_books_2014"]) == 0
    elif case.recipe == "ncf":
        write_ratings(folder)
    elif case.recipe == "embeddings":
        if "build" in request.node.name and not (ROOT / ".git").exists():
            pytest.skip("not a git repository")
        (folder / "distributed-embeddings").symlink_to(ROOT / "distributed-embeddings")
    return folder


@pytest.fixture
def shell(data, tmp_path, programs):
    """Returns a function that runs a command as replaced, and returns its output."""
    variables = {
        "PATH": f"{programs}:{ROOT}/.venv/bin:{os.environ['PATH']}",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "PARQUET_PATH": f"{tmp_path}/parquet",
        "TF_RECORD_PATH": f"{tmp_path}/records",
        "RAW_DATASET_PATH": f"{data}/amazon_books_2014",
        "PREBATCH_TRAIN_SIZE": "16",
        "PREBATCH_TEST_SIZE": "16",
        "download_dir": f"{data}/dlrm/criteo",
        "final_output_dir": f"{data}/dlrm/binary_dataset",
        "spark_output_path": f"{tmp_path}/spark",
    }

    def run(recipe, command):
        for printed, here in HERE[recipe]:
            command = command.replace(printed, here)
        names = {"{data}": data, "{results}": tmp_path / "results", "{root}": ROOT}
        for name, path in names.items():
            command = command.replace(name, shlex.quote(str(path)))
        is_build = "make pip_pkg" in command
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT / "original" / recipe if recipe != "embeddings" else data,
            env={**os.environ, **variables, **({"PYTHON": sys.executable} if is_build else {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    return run


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * case.is_long) for n, case in CASES.items()]
)
def test_commands(name, shell, tmp_path):
    case = CASES[name]
    for command, expected in case.steps:
        output = shell(case.recipe, command)
        if isinstance(expected, str):
            assert re.search(expected, output), f"{command}\n{output}"
        else:
            last = (tmp_path / "results/log.json").read_text().splitlines()[-1]
            summary = json.loads(last.removeprefix("DLLL "))["data"]
            assert summary.keys() >= expected, command


def test_page():
    """Each command on the page is a part of a step, or stated as not run."""
    steps = "\n".join(command for case in CASES.values() for command, _ in case.steps)
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 40
    unknown = [row for row in rows if row[0] not in steps and not row[1].startswith("not run")]
    assert unknown == []


def test_sizes_of_scripts():
    """A script in original/ has at most ten lines, and runs what is elsewhere."""
    for path in (ROOT / "original").rglob("*.*"):
        if "__pycache__" not in path.parts:
            assert len(path.read_text().splitlines()) <= 10, path
