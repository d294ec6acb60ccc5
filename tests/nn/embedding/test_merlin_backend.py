"""`--embedding_backend merlin` with a stand-in for NVIDIA's library, whose API ours has."""

import json
import shutil
import sys

import numpy as np
import pytest

import dlrm
from nn.embedding.merlin_api.backend import MerlinTable, _Whole

LIBRARY = "distributed_embeddings"
FLAGS = (
    *("--dataset_type", "synthetic", "--synthetic_dataset_cardinalities", "50,9,30"),
    *("--synthetic_dataset_num_numerical_features", "4", "--synthetic_dataset_train_batches", "6"),
    "--preset=terabyte",
    *("--synthetic_dataset_valid_batches", "2", "--batch_size", "64", "--valid_batch_size", "64"),
    *("--embedding_dim", "8", "--bottom_mlp_dims", "8", "--top_mlp_dims", "8,1", "--seed", "1"),
    *("--warmup_steps", "0", "--learning_rate", "0.1", "--print_freq", "2"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A package `distributed_embeddings` that hands on our classes."""
    folder = tmp_path_factory.mktemp("library")
    layers = folder / LIBRARY / "python/layers"
    layers.mkdir(parents=True)
    for package in (layers, layers.parent, layers.parent.parent):
        (package / "__init__.py").touch()
    (layers / "embedding.py").write_text("from nn.embedding import Embedding\n")
    (layers / "dist_model_parallel.py").write_text(
        "from nn.embedding.layer import DistributedEmbedding as Ours\n"
        "class DistributedEmbedding(Ours):\n"
        "    def __init__(self, embeddings, strategy='basic', column_slice_threshold=None,\n"
        "                 dp_input=True, input_table_map=None, **kwargs):\n"
        "        print('the library has the tables, strategy', strategy)\n"
        "        super().__init__(embeddings, strategy=strategy, dp_input=dp_input,\n"
        "                         column_slice_threshold=column_slice_threshold, **kwargs)\n"
    )
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """`run(*flags, library=FOLDER)`: `dlrm.py` with the library of that folder or without one;
    returns the exit code, stdout and stderr."""

    def run_with(*flags, library=None) -> tuple[int, str, str]:
        with monkeypatch.context() as changed:
            if library is not None:
                changed.syspath_prepend(library)
            code = dlrm.main(["dlrm.py", *map(str, flags)])
        for name in [name for name in sys.modules if name.startswith(LIBRARY)]:
            del sys.modules[name]  # the next one's may be another
        return code, *capsys.readouterr()

    return run_with


def losses(run_dir):
    lines = (run_dir / "log.json").read_text().splitlines()
    data = [json.loads(line.removeprefix("DLLL ")).get("data", {}) for line in lines]
    return [entry["loss"] for entry in data if isinstance(entry, dict) and "loss" in entry]


def test_training_and_checkpoints(library, run, tmp_path):
    """The tables of both backends have the same initial values, losses and files."""
    model = tmp_path / "model"
    code, _, errors = run(*FLAGS, "--run_dir", tmp_path / "native")
    assert code == 0, errors
    code, messages, errors = run(
        *(*FLAGS, "--run_dir", tmp_path / "merlin", "--embedding_backend", "merlin"),
        *("--save_checkpoint_path", model),
        library=library,
    )
    assert code == 0, errors
    assert "the library has the tables, strategy memory_balanced" in messages
    assert losses(tmp_path / "merlin") == pytest.approx(losses(tmp_path / "native"), rel=1e-5)
    aucs = []
    for backend in ("native", "auto"):
        code, messages, errors = run(
            *(*FLAGS, "--mode", "eval", "--run_dir", tmp_path / backend),
            *("--restore_checkpoint_path", model, "--embedding_backend", backend),
            library=library,
        )
        assert code == 0, errors
        assert ("embedding_backend merlin" in messages) == (backend == "auto")
        aucs.append(messages.split("summary")[1].split("best")[0])
    assert aucs[0] == aucs[1]


def test_resume_by_optimizer(library, run, tmp_path):
    """The library gives weights by table, and no optimizer's state. SGD has none."""
    for optimizer, resumes in (("sgd", True), ("adagrad", False)):
        folder = tmp_path / optimizer
        flags = (*FLAGS, "--embedding_backend", "merlin", "--embedding_optimizer", optimizer)
        flags += ("--save_checkpoint_path", folder / "model", "--run_dir", folder / "run")
        code, messages, errors = run(*flags, "--max_steps", "3", library=library)
        assert code == 0, errors
        why = "distributed-embeddings does not give the optimizer's state of its tables"
        assert ("checkpoints of this training cannot be resumed: Merlin's" in messages) != resumes
        code, _, errors = run(*flags, "--max_steps", "6", "--resume", "auto", library=library)
        assert code == (0 if resumes else 2), errors
        assert (why in errors) != resumes


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "NVIDIA's distributed-embeddings cannot be imported; install it"),
        (("--exchange_dtype", "float16"), "--exchange_dtype is not known to Merlin's"),
        (
            ("--column_slice_threshold", "9", "--embedding_optimizer", "rowwise_adagrad"),
            "rowwise_adagrad needs means over whole rows, which Merlin's column slices",
        ),
    ],
)
def test_unsupported_flags(run, tmp_path, flags, message):
    command = (*FLAGS, "--run_dir", tmp_path, "--embedding_backend", "merlin", *flags)
    code, _, errors = run(*command)
    assert code == 2
    assert message in errors


def test_option_of_another_version(library, run, tmp_path):
    """A library whose layer knows no column slices."""
    folder = tmp_path / "old"
    shutil.copytree(library, folder)
    file = folder / "distributed_embeddings/python/layers/dist_model_parallel.py"
    file.write_text(
        "class DistributedEmbedding:\n"
        "    def __init__(self, embeddings, strategy='basic', dp_input=True, dtype=None):\n"
        "        pass\n"
    )
    command = (*FLAGS, "--run_dir", tmp_path / "run", "--embedding_backend", "merlin")
    code, _, errors = run(*command, "--column_slice_threshold", "100", library=folder)
    assert code == 2
    assert "refuses an option" in errors and "column_slice_threshold" in errors


def test_auto_without_library(run, tmp_path):
    code, messages, errors = run(*FLAGS, "--run_dir", tmp_path, "--embedding_backend", "auto")
    assert code == 0, errors
    assert "embedding_backend" in messages and "embedding_backend merlin" not in messages


def test_tables_saved_in_columns():
    class Library:
        def set_weights(self, tables):
            self.tables = tables

    library = Library()
    whole = _Whole(library, 2)
    for number in range(2):
        table = MerlinTable(f"t{number}", (5, 4), whole, number)
        values = np.arange(20, dtype="f").reshape(5, 4) + number
        for column in (0, 1, 3):
            table.write(0, values[:2, column : column + 1], column)
            table.write(2, values[2:, column : column + 1], column)
        assert not hasattr(library, "tables"), "column 2 is missing"
        table.write(0, values[:, 2:3], 2)
    np.testing.assert_array_equal(library.tables[0], np.arange(20).reshape(5, 4))
    np.testing.assert_array_equal(library.tables[1], np.arange(20).reshape(5, 4) + 1)
