"""Every example, on small data; quick_start.py is run in test_wheel.py."""

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SYNTHETIC = EXAMPLES / "benchmarks/synthetic_models"
SMALL_DLRM = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]


def module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def numbers(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern + r":? ([\d.]+)", text)]


def test_dlrm_on_generated_rows(run_script):
    options = "--batch_size 256 --num_batches 200 --learning_rate 2 --table_sizes 20,10 --dp_input"
    done = run_script(EXAMPLES / "dlrm/main.py", *SMALL_DLRM, *options.split())
    assert done.returncode == 0, done.stderr
    (auc,) = numbers("AUC", done.stdout)
    assert auc > 0.7, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("flags", ["--optimizer adagrad --dp_input --alpha 0", "--optimizer sgd"])
def test_synthetic_model(run_script, flags):
    options = "--model criteo --batch_size 8 --num_steps 4 --num_data_batches 2"
    done = run_script(SYNTHETIC / "main.py", *options.split(), *flags.split())
    assert done.returncode == 0, done.stderr
    assert "26 embedding tables created." in done.stderr
    assert "Generated 26 categorical inputs for 26 embedding tables" in done.stderr
    assert numbers("Initial loss", done.stdout)
    assert re.search(r"^Iteration time: \d+\.\d{3} ms$", done.stdout, re.MULTILINE)
    assert "Benchmark step [0/4]" in done.stdout


@pytest.mark.long
def test_model_that_does_not_fit(run_script):
    done = run_script(SYNTHETIC / "main.py", "--model", "colossal")
    assert done.returncode != 0
    assert "fullest of 1 ranks" in done.stderr
    assert "tables created" not in done.stderr


@pytest.mark.long
def test_plan_of_a_synthetic_model(run_script):
    flags = "--model jumbo --plan_only --plan_world_size 128 --optimizer adagrad"
    done = run_script(SYNTHETIC / "main.py", *flags.split())
    assert done.returncode == 0, done.stderr
    assert "1022 tables, 1097 features" in done.stdout
    assert "on 128 ranks, strategy memory_balanced" in done.stdout


@pytest.mark.parametrize(
    ("name", "num_tables", "gib"),  # as published
    [
        ("tiny", 55, 4.2),
        ("small", 107, 26.3),
        ("medium", 311, 206.2),
        ("large", 612, 773.8),
        ("jumbo", 1022, 3109.5),
        ("colossal", 2002, 22327.4),
    ],
)
def test_published_sizes(name, num_tables, gib):
    sizes = module(SYNTHETIC / "model_sizes.py").MODELS[name]
    assert len(sizes.tables) == num_tables
    assert sum(4 * rows * dim for rows, dim in sizes.tables) / 2**30 == pytest.approx(gib, abs=0.06)
