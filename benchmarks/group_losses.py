"""NDCG@5 of the losses on a generated ranking problem, in which users differ from each other.

python -m benchmarks.group_losses --output PAGE

Each user gets lists of ten items and takes one of each, the item of the highest utility plus noise
(Gumbel): the utility is linear in the items' numbers. The numbers differ between users, too, such
as prices, and by different amounts: only the differences within a list have an effect. Items of
expensive and of cheap lists are taken equally often, so that the log loss must first learn the
level of each user; the losses of groups do not see it. Learning rate and epochs are chosen by the
validation lists of the first data set, for each loss.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.result_page import Page, QuickOptions, parse, table
from benchmarks.harness.studies import CHOOSING_SEED, choose, curve_of, mean_and_range, run
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.synthetic.rows import stored_spec

LOSSES = ("log_loss", "listwise", "pairwise")
LISTS = {"train": 2, "validation": 1, "test": 1}  # per user
ITEMS = 10  # per list
WEIGHTS = np.array([0.8, -0.8, 0.8, -0.8, 0.8, -0.8])  # utility of the items' numbers
LEVELS = np.array([0, 0, 1, 2, 4, 4])  # standard deviation of each number between users
LEARNING_RATES = (0.0005, 0.002, 0.008)
USERS, SEEDS, EPOCHS = 1000, 5, 30
COMMON = "--group_column=user --preset=terabyte --batch_size=512 --optimizer=adam --cpu"
COMMON += " --embedding_dim=16 --bottom_mlp_dims=64,32,16 --top_mlp_dims=128,64,1"
COMMON += " --warmup_steps=0 --decay_steps=0 --valid_batch_size=4096"


def make_data(folder: Path, users: int, seed: int) -> float:
    """Writes the data set; returns NDCG@5 of the true utility on the test split."""
    rng = np.random.default_rng(seed)
    levels = LEVELS * rng.normal(size=(users, 1, 1, len(WEIGHTS)))
    features = {f"x{i}": {"dtype": "float32"} for i in range(len(WEIGHTS))}
    channels = {
        fs.NUMERICAL_CHANNEL: list(features),
        fs.CATEGORICAL_CHANNEL: ["user"],
        fs.LABEL_CHANNEL: ["label"],
    }
    features |= {"user": {"dtype": "int32", "cardinality": users}, "label": {"dtype": "bool"}}
    for split, lists in LISTS.items():
        within = rng.normal(size=(users, lists, ITEMS, len(WEIGHTS)))
        utility = within @ WEIGHTS
        taken = np.argmax(utility + rng.gumbel(size=utility.shape), axis=2)
        labels = np.arange(ITEMS) == taken[..., None]
        numbers = (levels + within) / np.sqrt(1 + LEVELS**2)
        ids = np.broadcast_to(np.arange(users)[:, None, None], labels.shape)
        arrays = {"numerical": np.float32(numbers), "cat_0": np.int32(ids), "label": labels}
        (folder / split).mkdir(parents=True)
        for name, array in arrays.items():
            array.tofile(folder / split / f"{name}.bin")
    spec = stored_spec(features, channels, LISTS)
    dataclasses.replace(spec, base_directory=folder).to_yaml(folder / SPEC_FILE)
    place = (utility > utility[labels].reshape(users, lists, 1)).sum(axis=2)
    return float(np.where(place < 5, 1 / np.log2(place + 2), 0).mean())


def train(data: Path, folder: Path, split: str, seed: int, flags: str) -> dict[str, list[float]]:
    """Trains; returns the metrics of a split after each epoch."""
    where = (f"--dataset_path={data}", f"--eval_mapping={split}", f"--run_dir={folder}")
    run("dlrm.py", *COMMON.split(), *flags.split(), *where, f"--seed={seed}")
    return {metric: curve_of(folder, metric) for metric in ("ndcg@5", "gauc", "auc")}


def compare(folder: Path, users: int, seeds: int, epochs: int) -> tuple[list[tuple], float]:
    """Returns the rows of the table, each loss with its settings and its metrics over seeds, and
    the smallest gain of the listwise loss."""
    sets = [folder / f"data-{seed}" for seed in range(seeds)]
    best = [make_data(data, users, seed) for seed, data in enumerate(sets)]
    rows, ndcg = [], {}
    for loss in LOSSES:
        chosen = choose(
            (f"--loss={loss} --learning_rate={rate}" for rate in LEARNING_RATES),
            lambda flags: train(
                sets[0], folder, "validation", CHOOSING_SEED, f"{flags} --epochs={epochs}"
            )["ndcg@5"],
        )
        flags = f"{chosen.flags} --epochs={chosen.epochs}"
        runs = [train(data, folder, "test", seed, flags) for seed, data in enumerate(sets)]
        metrics = {name: np.array([each[name][-1] for each in runs]) for name in runs[0]}
        ndcg[loss] = metrics["ndcg@5"]
        values = (metrics["ndcg@5"], ndcg[loss] - ndcg[LOSSES[0]], metrics["gauc"], metrics["auc"])
        rows.append((flags, f"{chosen.value:.4f}", *map(mean_and_range, values)))
    rows.append(("true utility", "", mean_and_range(best), "", "", ""))
    return rows, min(ndcg["listwise"] - ndcg[LOSSES[0]])


def main(argv: Sequence[str] | None = None) -> int:
    """Generates, chooses, trains and writes the page."""
    args = parse(QuickOptions, argv, "group_losses", __doc__)
    sizes = (20, 1, 1) if args.quick else (USERS, SEEDS, EPOCHS)
    with tempfile.TemporaryDirectory() as temporary:
        rows, least = compare(Path(temporary), *sizes)
    facts = [
        f"{sizes[0]:,} users with {LISTS} lists of {ITEMS} items; one data set per seed, "
        f"{sizes[1]} seeds",
        f"utility: {WEIGHTS.tolist()} times the numbers of an item, whose standard deviation is 1 "
        f"within a list and {LEVELS.tolist()} between users; the models read standardized numbers",
        f"settings: the best learning rate of {list(LEARNING_RATES)} and number of epochs, up to "
        f"{sizes[2]}, by NDCG@5 of the validation lists of the first data set and one seed. "
        "Then test lists are looked at once, after the last epoch",
        f"all: dlrm.py {COMMON}; other flags at their defaults",
        "gain: compared with the log loss on the same data set",
    ]
    page = Page("Losses of groups on a generated ranking problem", "group_losses", args, facts)
    columns = ("settings", "validation NDCG@5", "test NDCG@5 (range)", "gain (range)")
    page.add("Results", *table((*columns, "GAUC (range)", "AUC (range)"), rows, num_text=2))
    page.judge(f"listwise gains {least:.4f} or more NDCG@5 in each seed", "above 0", least > 0)
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
