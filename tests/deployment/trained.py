"""Tiny trained models with their data sets on the disk, to be served.

Each function trains into an empty folder in seconds. The fixtures of conftest.py train once in a
session; a test that changes a checkpoint trains one of its own.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

import dcnv2
import dlrm
import ncf
import sim
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from deployment.client.evaluation_requests import labelled_requests
from deployment.deploy import __main__ as deployment
from deployment.model.trained_model import evaluation_rows, open_checkpoint
from preproc.amazon_books import __main__ as amazon_books
from preproc.movielens import __main__ as movielens
from preproc.transcode import __main__ as transcode
from tests import sequence_data, tastes

TEST_ROWS = 300  # generated clicks; the last batch of 128 is short

# Cardinalities that need int8, int16 and int32, and one feature of hotness 3.
CARDINALITIES, HOTNESS = (10, 300, 7, 40_000), (1, 1, 3, 1)

CLICKS = (
    "--preset=terabyte",
    *("--batch_size=256", "--valid_batch_size=128", "--embedding_dim=8", "--top_mlp_dims=16,1"),
    *("--warmup_steps=1", "--decay_steps=0", "--print_freq=1000", "--seed=1", "--cpu"),
)
DLRM = (*CLICKS, "--optimizer=adagrad", "--learning_rate=0.1")
DCNV2 = (*CLICKS, "--learning_rate=0.01", "--cross_layer_projection_dim=6", "--num_cross_layers=2")
BOTTOM = "--bottom_mlp_dims=16,8"
SEQUENTIAL = (
    "--preset=terabyte",
    *("--global_batch_size=64", "--embedding_dim=4", "--stage_two_mlp_dims=8,4", "--lr=0.02"),
    *("--epochs=1", "--print_freq=1000", "--seed=1", "--affinity=disabled", "--cpu"),
)
SEARCH = ("--long_seq_length=8", "--gsu_top_k=3", "--stage_one_mlp_dims=8", "--aux_mlp_dims=8")
SIM, DIN = (*SEQUENTIAL, *SEARCH), (*SEQUENTIAL, "--model_type=din")
NCF = (
    "--preset=terabyte",
    *("-b=240", "--valid_batch_size=300", "-f=8", "--layers=16,16,8", "-l=0.03", "-e=2", "-s=1"),
    *("--print_freq=1000", "-k=3", "--dropout=0.1", "--cpu"),
)


class TrainedFixture(NamedTuple):
    """A trained model, the module of its recipe, its data set, and its folder of checkpoints."""

    recipe: object
    data: Path
    checkpoint: Path

    def scores(self, folder: Path, split: str = "test") -> np.ndarray:
        """Scores of `--mode predict` for the rows of a split, float32 [rows]; `folder` is empty."""
        path = folder / "scores.npy"
        command_line = [
            *("prog", f"--dataset_path={self.data}", "--mode=predict", f"--eval_mapping={split}"),
            *(f"--restore_checkpoint_path={self.checkpoint}", f"--predictions_path={path}"),
            *(f"--run_dir={folder / 'run'}", "--cpu", "--seed=1"),
        ]
        assert self.recipe.main(command_line) == 0
        return np.load(path)

    def deploy(self, repository: Path, *flags: str) -> int:
        """Runs `deployment.deploy`; returns its exit status."""
        where = [f"--checkpoint_dir={self.checkpoint}", f"--model_repository={repository}"]
        return deployment.main([*where, *flags])

    def requests(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """All rows to evaluate on as one request, and their labels."""
        model = open_checkpoint(str(self.checkpoint))
        parts = list(labelled_requests(model, evaluation_rows(model, 10_000)))
        names = parts[0].arrays
        arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in names}
        return arrays, np.concatenate([part.labels for part in parts])


def train(recipe, folder: Path, flags, data: Path) -> TrainedFixture:
    """Trains a recipe on a data set into `folder`."""
    checkpoint = folder / "checkpoint"
    keep = "checkpoint_dir" if recipe is ncf else "save_checkpoint_path"
    command_line = [f"--dataset_path={data}", f"--{keep}={checkpoint}", *flags]
    assert recipe.main(["prog", f"--run_dir={folder / 'run'}", *command_line]) == 0
    return TrainedFixture(recipe, data, checkpoint)


def write_clicks(folder: Path, num_numerical: int = 3) -> Path:
    """A data set of generated clicks: 1,000 rows to train on, 300 to test."""
    spec = synthetic_spec(CARDINALITIES, HOTNESS, num_numerical=num_numerical)
    data = folder / "data"
    write_dataset(data, spec, {"train": 1000, "test": TEST_ROWS}, seed=0)
    return data


def train_dlrm(folder: Path) -> TrainedFixture:
    """DLRM on generated clicks, with numerical features, and a feature of hotness 3."""
    return train(dlrm, folder, [*DLRM, BOTTOM], write_clicks(folder))


def train_dcnv2(folder: Path) -> TrainedFixture:
    """DCNv2 on generated clicks, with tables of other widths."""
    flags = [*DCNV2, BOTTOM, "--embedding_dim=4,8,4,16"]
    return train(dcnv2, folder, flags, write_clicks(folder))


def train_din(folder: Path) -> TrainedFixture:
    """DIN on 200 rows of histories of 12 steps, and 200 to test; the history of every fourth user
    is empty."""
    sequence_data.write(folder / "data", 200)
    return train(sim, folder, DIN, folder / "data")


def train_ncf(folder: Path) -> TrainedFixture:
    """NeuMF on 480 interactions, with a candidate list of 13 rows of each of 60 users to test."""
    tastes.write(folder / "data")
    return train(ncf, folder, NCF, folder / "data")


def write_shop(folder: Path, rows: int, seed: int, label: bool = True) -> None:
    """Writes a CSV file with a header: city, user, tags, price and, if requested, bought."""
    rng = np.random.default_rng(seed)
    lines = ["city,user,tags,price" + ",bought" * label]
    for _ in range(rows):
        city, user = rng.choice(["Bern", "Oslo", "Paris"]), f"user{rng.integers(0, 50)}"
        tags = ";".join(rng.choice(["new", "sale", "red"], 2))
        bought = int(rng.random() < (0.7 if city == "Oslo" else 0.3))
        lines.append(f"{city},{user},{tags},{rng.gamma(2, 10):.2f}" + f",{bought}" * label)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("\n".join(lines) + "\n")


def train_dlrm_of_texts(folder: Path) -> TrainedFixture:
    """DLRM on a CSV file whose ids come from a vocabulary (city, two tags per row) and a hash
    (user, 64 buckets); `folder / "raw"` has the files, `data / "vocabulary"` the vocabularies."""
    raw = folder / "raw"
    for number, (split, rows) in enumerate({"train": 600, "test": 100}.items()):
        write_shop(raw / f"{split}.csv", rows, seed=number)
    columns = ["city", "user", "tags", "price", "bought"]
    spec = {
        "feature_spec": {
            "bought": {},
            "price": {},
            "city": {"cardinality": "auto"},
            "user": {"cardinality": "auto"},
            "tags": {"cardinality": "auto", "hotness": 2},
        },
        "source_spec": {
            split: [{"type": "csv", "header": True, "features": columns, "files": [f"{split}.csv"]}]
            for split in ("train", "test")
        },
        "channel_spec": {
            "label": ["bought"],
            "numerical": ["price"],
            "categorical": ["city", "user", "tags"],
        },
    }
    (raw / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    data = folder / "data"
    command_line = ["--categorify=city,tags", "--hash_buckets=user=64"]
    assert transcode.main([f"--input={raw}", f"--output={data}", *command_line]) == 0
    return train(dlrm, folder, [*DLRM, BOTTOM], data)


def write_events(path: Path, header: str, num_users: int, user: str, item: str) -> None:
    """Writes a CSV file of 9 events of each of the users 1, 2, ..., with 40 items; `user` and
    `item` format their numbers."""
    rng = np.random.default_rng(0)
    rows = [
        f"{user.format(number)},{item.format(choice)},{time}"
        for number in range(1, num_users + 1)
        for time, choice in enumerate(rng.choice(np.arange(number % 4, 40, 2), 9, replace=False))
    ]
    path.write_text("\n".join([header, *rows]) + "\n")


def train_ncf_of_ratings(folder: Path) -> TrainedFixture:
    """NeuMF on ratings of the users u1 to u60, and movies whose ids are integers from 100 on."""
    log, data = folder / "log.csv", folder / "data"
    write_events(log, "person,movie,time", 60, "u{}", "1{:02}")
    flags = ["--user_column=person", "--item_column=movie", "--time_column=time"]
    flags += ["--min_ratings=5", "--valid_negative=12", f"--input={log}", f"--output={data}"]
    assert movielens.main(flags) == 0
    return train(ncf, folder, NCF, data)


def train_sim_of_events(folder: Path) -> TrainedFixture:
    """SIM on events of the shoppers 1 to 60 with books b0 to b39 of 4 genres."""
    log, items, data = folder / "log.csv", folder / "items.csv", folder / "data"
    write_events(log, "shopper,book,time", 60, "{}", "b{}")
    genres = [f"b{number},genre{number % 4}" for number in range(40)]
    items.write_text("\n".join(["book,genre", *genres]) + "\n")
    flags = ["--input_format=tables", "--user_column=shopper", "--item_column=book"]
    flags += ["--time_column=time", "--item_features=genre", "--min_events=5", "--max_history=12"]
    flags += [f"--interactions={log}", f"--items={items}", f"--output_path={data}"]
    assert amazon_books.main([*flags, "--engine=duckdb"]) == 0
    return train(sim, folder, SIM, data)
