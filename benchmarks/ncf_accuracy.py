"""HR@10 and NDCG@10 of NeuMF on the splits of published papers, over seeds, and of popularity.

python -m benchmarks.ncf_accuracy --data FOLDER --output PAGE

FOLDER holds `ncf_ml1m/` (MovieLens 1M in the split of He et al., 2017) and `ncf_lastfm/` (Last.fm
in the same form): training interactions, one test positive a user and 99 negatives of it. Settings
are chosen on a held-out training interaction of each user, with 99 drawn negatives and one seed;
then the model is trained with other seeds on all training interactions, for the epochs that were
chosen, and looks at the test file once, at the end.

The test positive of ml-1m is the user's last interaction, and less popular than others: ranking by
popularity finds .4531 of them by published figures, but .567 of interactions that are held out at
random. The files have no times, so ml-1m's held-out interaction is drawn with a weight of its item,
popularity to the power that makes the ranking by popularity as good as on the test.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.result_page import Page, parse, table
from benchmarks.harness.studies import (
    CHOOSING_SEED,
    StudyOptions,
    choose,
    mean_and_range,
    run,
    summary_of,
)
from dataloading.interactions.candidate_rules import list_length_key
from dataloading.interactions.stored import (
    num_users_and_items,
    read_candidate_lists,
    read_interactions,
)
from dataloading.interactions.unseen_items import draw_unseen, keys_of
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives
from preproc.interactions import data_set
from preproc.interactions.data_set import CandidateLists
from recipes.baseline.interactions import ranks_by_popularity

METRICS = ("hr@10", "ndcg@10")


class Task(NamedTuple):
    """A data set with published results."""

    folder: str  # in --data
    published: tuple[float, float]  # HR@10 and NDCG@10 of NeuMF in DeepCF (Deng et al., AAAI 2019)
    # published HR@10 of the ranking by popularity that held-out interactions must have, too;
    # None: they are drawn uniformly
    popular: float | None
    candidates: list[str]  # settings to choose from


# The learning rate falls to 0 at the last step, so that the last epoch is the best one.
ML_1M, LASTFM = (f"--flagfile=recipes/presets/{name}_neumf.flags" for name in ("ml_1m", "lastfm"))
TASKS = {
    "ml-1m": Task(
        "ncf_ml1m",
        (0.7210, 0.4387),
        0.4531,
        [f"{ML_1M} --negative_exponent={exponent}" for exponent in (0, 0.3, 0.4)],
    ),
    "lastfm": Task(
        "ncf_lastfm",
        (0.8868, 0.6007),
        None,
        [
            LASTFM,
            f"{LASTFM} -f=64 -l=0.005 --embedding_learning_rate=0.005 --weight_decay=0.5",
        ],
    ),
}


def prepare(task: Task, data: Path, folder: Path) -> dict[str, Path]:
    """The data set with a validation interaction of each user, and as it is, prepared."""
    rows = {split: folder / split for split in (VALIDATION, TEST)}
    command = ("-m", "preproc.movielens", "--input", data / task.folder)
    run(*command, "--output", rows[TEST])
    if task.popular is None:
        run(*command, "--output", rows[VALIDATION], "--validation", "--valid_negative", 99)
    else:
        hold_out(rows[TEST], rows[VALIDATION], task.popular)
    return rows


def popularity(rows: Path) -> tuple[float, float]:
    """HR@10 and NDCG@10, on the test split, of an item's number of training interactions."""
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    by_rank = ranks_by_popularity(spec, read_candidate_lists(spec, TEST))
    return hit_rate(by_rank, 10), ndcg(by_rank, 10)


def hold_out(rows: Path, output: Path, popular: float) -> None:
    """Writes a data set of the training interactions of another one, with a validation split.

    `popular` is HR@10 of the ranking by popularity on the validation split.
    """
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    users, items = read_interactions(spec, TRAIN)
    num_users, num_items = num_users_and_items(spec)
    counts = np.bincount(items, minlength=num_items)
    keys = np.sort(keys_of(users, items, num_items))
    negatives = draw_unseen(np.arange(num_users), num_items, keys, 99, CHOOSING_SEED)
    chance = np.random.default_rng(CHOOSING_SEED).exponential(size=len(items))

    def held_out_rows(power: float) -> np.ndarray:
        """The row of each user that is held out: of exponential times over weights the least."""
        order = np.argsort(chance / counts[items] ** power)
        return order[np.unique(users[order], return_index=True)[1]]

    least, most = -1.0, 0.0
    for _ in range(12):
        power = (least + most) / 2
        lists = np.concatenate([items[held_out_rows(power)][:, None], negatives], axis=1)
        labels = np.broadcast_to(np.arange(lists.shape[1]) == 0, lists.shape)
        by_rank = np.bincount(ranks_of_positives(lists, labels, counts[lists].astype(float)))
        least, most = (power, most) if hit_rate(by_rank, 10) < popular else (least, power)
    left = np.delete(np.arange(len(users)), held_out_rows(power))
    candidates = CandidateLists(np.arange(num_users), items[held_out_rows(power)], negatives)
    output.mkdir()
    data_set.write_train(output, [(users[left], items[left])])
    data_set.write_candidate_lists(output, VALIDATION, candidates)
    metadata = {list_length_key(VALIDATION): candidates.rows_per_list}
    data_set.write_spec(output, (num_users, num_items), [VALIDATION], metadata)


def train(rows: Path, folder: Path, flags: str, seed: int, split: str) -> list[float]:
    """Trains, then evaluates the last model once; returns its `METRICS`."""
    with tempfile.TemporaryDirectory(dir=folder) as model:
        common = ("ncf.py", f"--data={rows}", f"--seed={seed}", f"--run_dir={folder}")
        saved = (f"--save_checkpoint_path={model}/model", "--evals_per_epoch=0")
        run(*common, *flags.split(), *saved)
        load = (f"--restore_checkpoint_path={model}/model", "--mode=test")
        run(*common, *load, f"--eval_mapping={split}")
    return [summary_of(folder)[metric] for metric in METRICS]


def measure(task: Task, data: Path, seeds: int, folder: Path) -> tuple[str, ...]:
    """Chooses by validation, then trains with each seed; returns cells of the table."""
    rows = prepare(task, data, folder)
    flags, _, _ = choose(
        task.candidates,
        lambda flags: train(rows[VALIDATION], folder, flags, CHOOSING_SEED, VALIDATION)[1:],
    )
    runs = [train(rows[TEST], folder, flags, seed, TEST) for seed in range(1, seeds + 1)]
    pairs = (task.published, popularity(rows[TEST]))
    return (
        f"`{flags}`",
        *(mean_and_range(values) for values in zip(*runs, strict=True)),
        *(f"{hits:.4f} / {gain:.4f}" for hits, gain in pairs),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prepares, trains and writes the page."""
    args = parse(StudyOptions, argv, "ncf_accuracy", __doc__)
    rows = []
    for name, task in TASKS.items():
        with tempfile.TemporaryDirectory() as temporary:
            rows.append((name, *measure(task, args.data, args.seeds, Path(temporary))))
    facts = [
        "settings: the best NDCG@10 on a training interaction of each user held out, of Last.fm at "
        "random, of MovieLens as popular as the test's (the files have no times; see the script), "
        f"among 99 drawn negatives, with seed {CHOOSING_SEED}. Then other seeds train on all "
        "training interactions and look at the test file once, after the last epoch",
        "published: NeuMF in DeepCF (AAAI 2019); popularity: an item's number of interactions",
    ]
    page = Page("Accuracy of NeuMF on the splits of published papers", "ncf_accuracy", args, facts)
    columns = ("data", "settings", *(f"{m.upper()} mean (lowest, highest)" for m in METRICS))
    page.add("Results", *table((*columns, "published", "popularity"), rows, num_text=2))
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
