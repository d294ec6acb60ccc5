"""`--embedding_backend merlin` with a stand-in for NVIDIA's library, whose API ours has."""

import json
import shutil

import numpy as np
import pytest

from nn.embedding.merlin import MerlinTable, _Whole

FLAGS = (
    *("--dataset_type", "synthetic", "--synthetic_dataset_cardinalities", "50,9,30"),
    *("--synthetic_dataset_num_numerical_features", "4", "--synthetic_dataset_train_batches", "6"),
    *("--synthetic_dataset_valid_batches", "2", "--batch_size", "64", "--valid_batch_size", "64"),
    *("--embedding_dim", "8", "--bottom_mlp_dims", "8", "--top_mlp_dims", "8,1", "--seed", "1"),
    *("--warmup_steps", "0", "--learning_rate", "0.1", "--print_freq", "2"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A package `distributed_embeddings` that hands on our classes."""
    folder = tmp_path_factory.mktemp("library")
    layers = folder / "distributed_embeddings/python/layers"
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
    return {"PYTHONPATH": str(folder)}


def losses(run_dir):
    lines = (run_dir / "log.json").read_text().splitlines()
    data = [json.loads(line.removeprefix("DLLL ")).get("data", {}) for line in lines]
    return [entry["loss"] for entry in data if isinstance(entry, dict) and "loss" in entry]


def test_it_trains_and_its_checkpoints_are_ours(library, run_script, tmp_path):
    """The tables of both backends have the same initial values, losses and files."""
    model = tmp_path / "model"
    done = run_script("dlrm.py", *FLAGS, "--run_dir", tmp_path / "native")
    assert done.returncode == 0, done.stderr
    done = run_script(
        *("dlrm.py", *FLAGS, "--run_dir", tmp_path / "merlin", "--embedding_backend", "merlin"),
        *("--save_checkpoint_path", model),
        env=library,
    )
    assert done.returncode == 0, done.stderr
    assert "the library has the tables, strategy memory_balanced" in done.stdout
    assert losses(tmp_path / "merlin") == pytest.approx(losses(tmp_path / "native"), rel=1e-5)
    aucs = []
    for backend in ("native", "auto"):
        done = run_script(
            *("dlrm.py", *FLAGS, "--mode", "eval", "--run_dir", tmp_path / backend),
            *("--restore_checkpoint_path", model, "--embedding_backend", backend),
            env=library,
        )
        assert done.returncode == 0, done.stderr
        assert ("embedding_backend merlin" in done.stdout) == (backend == "auto")
        aucs.append(done.stdout.split("summary")[1].split("best")[0])
    assert aucs[0] == aucs[1]


def test_what_cannot_be_resumed_says_so(library, run_script, tmp_path):
    """The library gives weights by table, and no optimizer's state. SGD has none."""
    for optimizer, resumes in (("sgd", True), ("adagrad", False)):
        folder = tmp_path / optimizer
        flags = (*FLAGS, "--embedding_backend", "merlin", "--embedding_optimizer", optimizer)
        flags += ("--save_checkpoint_path", folder / "model", "--run_dir", folder / "run")
        done = run_script("dlrm.py", *flags, "--max_steps", "3", env=library)
        assert done.returncode == 0, done.stderr
        why = "distributed-embeddings does not give the optimizer's state of its tables"
        assert (
            "checkpoints of this training cannot be resumed: Merlin's" in done.stdout
        ) != resumes
        done = run_script("dlrm.py", *flags, "--max_steps", "6", "--resume", "auto", env=library)
        assert done.returncode == (0 if resumes else 2), done.stderr
        assert (why in done.stderr) != resumes


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
def test_what_it_cannot_do(run_script, tmp_path, flags, message):
    command = ("dlrm.py", *FLAGS, "--run_dir", tmp_path, "--embedding_backend", "merlin", *flags)
    done = run_script(*command)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_option_of_another_version(library, run_script, tmp_path):
    """A library whose layer knows no column slices."""
    folder = tmp_path / "old"
    shutil.copytree(library["PYTHONPATH"], folder)
    file = folder / "distributed_embeddings/python/layers/dist_model_parallel.py"
    file.write_text(
        "class DistributedEmbedding:\n"
        "    def __init__(self, embeddings, strategy='basic', dp_input=True, dtype=None):\n"
        "        pass\n"
    )
    command = ("dlrm.py", *FLAGS, "--run_dir", tmp_path, "--embedding_backend", "merlin")
    env = {"PYTHONPATH": str(folder)}
    done = run_script(*command, "--column_slice_threshold", "100", env=env)
    assert done.returncode == 2
    assert "refuses an option" in done.stderr and "column_slice_threshold" in done.stderr


def test_auto_is_ours_where_the_library_is_not(run_script, tmp_path):
    done = run_script("dlrm.py", *FLAGS, "--run_dir", tmp_path, "--embedding_backend", "auto")
    assert done.returncode == 0, done.stderr
    assert "embedding_backend" in done.stdout and "embedding_backend merlin" not in done.stdout


def test_tables_that_were_saved_in_columns_are_read():
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
