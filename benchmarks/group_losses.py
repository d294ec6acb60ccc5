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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness.result_page import BenchmarkOptions, Page, command, parse, table
from benchmarks.harness.studies import log_of, mean_and_range, run
from config.flag import flag
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.synthetic.rows import stored_spec

LOSSES = ("log_loss", "listwise", "pairwise")
LISTS = {"train": 2, "validation": 1, "test": 1}  # per user
ITEMS = 10  # per list
WEIGHTS = np.array([0.8, -0.8, 0.8, -0.8, 0.8, -0.8])  # utility of the items' numbers
LEVELS = np.array([0, 0, 1, 2, 4, 4])  # standard deviation of each number between users
LEARNING_RATES = (0.0005, 0.002, 0.008)
COMMON = "--group_column=user --preset=terabyte --batch_size=512 --optimizer=adam --cpu"
COMMON += " --embedding_dim=16 --bottom_mlp_dims=64,32,16 --top_mlp_dims=128,64,1"
COMMON += " --warmup_steps=0 --decay_steps=0 --valid_batch_size=4096"


def make_data(folder: Path, users: int, seed: int) -> dict[str, float]:
    """Writes the data set; returns of each split the NDCG@5 of the true utility."""
    rng = np.random.default_rng(seed)
    levels = LEVELS * rng.normal(size=(users, 1, 1, len(WEIGHTS)))
    features = {f"x{i}": {"dtype": "float32"} for i in range(len(WEIGHTS))}
    features |= {"user": {"dtype": "int32", "cardinality": users}, "label": {"dtype": "bool"}}
    channels = {
        fs.NUMERICAL_CHANNEL: [f"x{i}" for i in range(len(WEIGHTS))],
        fs.CATEGORICAL_CHANNEL: ["user"],
        fs.LABEL_CHANNEL: ["label"],
    }
    spec, best = stored_spec(features, channels, LISTS), {}
    for split, lists in LISTS.items():
        within = rng.normal(size=(users, lists, ITEMS, len(WEIGHTS)))
        utility = within @ WEIGHTS
        taken = np.argmax(utility + rng.gumbel(size=utility.shape), axis=2)
        labels = np.arange(ITEMS) == taken[..., None]
        place = (utility > utility[labels].reshape(users, lists, 1)).sum(axis=2)
        best[split] = float(np.where(place < 5, 1 / np.log2(place + 2), 0).mean())
        numbers = (levels + within) / np.sqrt(1 + LEVELS**2)
        ids = np.broadcast_to(np.arange(users)[:, None, None], labels.shape)
        arrays = {"numerical": np.float32(numbers), "cat_0": np.int32(ids), "label": labels}
        (folder / split).mkdir(parents=True)
        for name, array in arrays.items():
            array.tofile(folder / split / f"{name}.bin")
    dataclasses.replace(spec, base_directory=folder).to_yaml(folder / SPEC_FILE)
    return best


def train(data: Path, folder: Path, flags: Sequence[str], split: str) -> list[dict[str, float]]:
    """Trains; returns the metrics of a split after each epoch."""
    where = (f"--dataset_path={data}", f"--eval_mapping={split}", f"--run_dir={folder}")
    run("dlrm.py", *COMMON.split(), *flags, *where)
    return [
        entry["data"]
        for entry in log_of(folder)
        if len(entry.get("step", "")) == 2 and "ndcg@5" in entry["data"]
    ]


def choose(data: Path, folder: Path, loss: str, epochs: int) -> tuple[float, int, float]:
    """Returns the learning rate and the number of epochs of the best NDCG@5 of validation lists,
    and this NDCG@5."""
    tried = []
    for rate in LEARNING_RATES:
        flags = (f"--loss={loss}", f"--learning_rate={rate}", f"--epochs={epochs}", "--seed=100")
        curve = [each["ndcg@5"] for each in train(data, folder / f"{rate}", flags, "validation")]
        best = int(np.argmax(curve))
        tried.append((rate, best + 1, curve[best]))
    return max(tried, key=lambda choice: choice[2])


def compare(folder: Path, users: int, seeds: int, epochs: int) -> tuple[list[list[str]], float]:
    """Returns the rows of the table, each loss with its settings and its metrics over seeds, and
    the smallest gain of the listwise loss."""
    sets = [folder / f"data-{seed}" for seed in range(seeds)]
    best = [make_data(data, users, seed)["test"] for seed, data in enumerate(sets)]
    rows, without_groups, least = [], np.zeros(seeds), 0.0
    for loss in LOSSES:
        rate, count, chosen = choose(sets[0], folder / loss, loss, epochs)
        flags = (f"--loss={loss}", f"--learning_rate={rate}", f"--epochs={count}")
        metrics = [
            train(data, folder / f"{loss}-{seed}", (*flags, f"--seed={seed}"), "test")[-1]
            for seed, data in enumerate(sets)
        ]
        ndcg, gauc, auc = (
            np.array([each[name] for each in metrics]) for name in ("ndcg@5", "gauc", "auc")
        )
        without_groups = ndcg if loss == LOSSES[0] else without_groups
        least = min(ndcg - without_groups) if loss == "listwise" else least
        print(loss, rate, count, chosen, ndcg, flush=True)
        values = (ndcg, ndcg - without_groups, gauc, auc)
        rows.append([loss, f"{rate:g}, {count}", f"{chosen:.4f}", *map(mean_and_range, values)])
    return [*rows, ["true utility", "", "", mean_and_range(best), "", "", ""]], least


@dataclass(frozen=True, kw_only=True)
class GroupOptions(BenchmarkOptions):
    """Flags of the benchmark."""

    users: int = flag(1000, "users of a data set", at_least=1)
    seeds: int = flag(5, "data sets, a training each", at_least=1)
    epochs: int = flag(30, "most epochs to choose from", at_least=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Generates, chooses, trains and writes the page."""
    args = parse(GroupOptions, arguments, "group_losses", __doc__)
    with tempfile.TemporaryDirectory() as temporary:
        rows, least = compare(Path(temporary), args.users, args.seeds, args.epochs)
    columns = ("loss", "learning rate, epochs", "validation NDCG@5", "test NDCG@5 (range)")
    columns += ("gain (range)", "GAUC (range)", "AUC (range)")
    facts = [
        f"{args.users:,} users with {LISTS} lists of {ITEMS} items; one data set per seed, "
        f"{args.seeds} seeds",
        f"utility: {WEIGHTS.tolist()} times the numbers of an item, whose standard deviation is 1 "
        f"within a list and {LEVELS.tolist()} between users; the models read standardized numbers",
        f"settings: the best learning rate of {list(LEARNING_RATES)} and number of epochs, up to "
        f"{args.epochs}, by NDCG@5 of the validation lists of the first data set and one seed. "
        "Then test lists are looked at once, after the last epoch",
        f"all: dlrm.py {COMMON}; other flags at their defaults",
        "gain: compared with the log loss on the same data set",
    ]
    title = "Losses of groups on a generated ranking problem"
    page = Page(title, [command("group_losses", args)], facts)
    page.add("Results", *table(columns, rows, num_text=3))
    page.judge(f"listwise gains {least:.4f} or more NDCG@5 in each seed", "above 0", least > 0)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
