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

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.machine import describe
from benchmarks.harness.recipe_runs import run
from dataloading.interactions.candidate_rules import series_key
from dataloading.interactions.stored import num_users_and_items, read_interactions, read_series
from dataloading.interactions.unseen_items import draw_unseen, keys_of
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives

CHOOSING_SEED = 100
METRICS = ("hr@10", "ndcg@10")


class Task(NamedTuple):
    """A data set with published results.

    Attributes:
        folder: in --data.
        published: HR@10 and NDCG@10 of NeuMF in DeepCF (Deng et al., AAAI 2019).
        popular: published HR@10 of the ranking by popularity that held-out interactions must have,
          too; None: they are drawn uniformly.
        candidates: settings to choose from.
    """

    folder: str
    published: tuple[float, float]
    popular: float | None
    candidates: dict[str, tuple[str, ...]]


# A learning rate that falls to 0 at the last step, so that the last epoch is the best one.
COMMON = (
    "--preset=terabyte",
    "-b1=0.9",
    "-b2=0.999",
    "--decay_start_step=0",
    "--decay_power=1",
    "--layers=64,32,16",
)
ML_1M = (*COMMON, "-e=10", "--dropout=0.2", "--embedding_learning_rate=0.02", "-l=0.002")
ML_1M += ("--weight_decay=0.3", "-f=128", "-n=8", "-b=32768", "--decay_steps=2740")
LASTFM = (*COMMON, "-n=8", "-b=8192", "-e=20", "--dropout=0.5", "--embedding_optimizer=adam")
LASTFM += ("--decay_steps=1500",)
TASKS = {
    "ml-1m": Task(
        "ncf_ml1m",
        (0.7210, 0.4387),
        0.4531,
        {
            f"negatives^{exponent}": (*ML_1M, f"--negative_exponent={exponent}")
            for exponent in (0, 0.3, 0.4)
        },
    ),
    "lastfm": Task(
        "ncf_lastfm",
        (0.8868, 0.6007),
        None,
        {
            "wide": (*LASTFM, "-f=128", "-l=0.001", "--embedding_learning_rate=0.01")
            + ("--weight_decay=0.35",),
            "default factors": (*LASTFM, "-f=64", "-l=0.005", "--weight_decay=0.5"),
        },
    ),
}


def prepare(task: Task, data: Path, folder: Path) -> dict[str, Path]:
    """The data set with a validation interaction of each user, and as it is, prepared."""
    results = {mapping: folder / mapping for mapping in (VALIDATION, TEST)}
    command = ("-m", "preproc.movielens", "--input", data / task.folder, "--output")
    run(*command, results[TEST])
    if task.popular is None:
        run(*command, results[VALIDATION], "--validation", "--valid_negative", 99)
    else:
        hold_out(results[TEST], results[VALIDATION], task.popular)
    return results


def hold_out(rows: Path, output: Path, popular: float) -> None:
    """Writes a data set without its test part, whose validation is as popular as is asked.

    Args:
        rows: the prepared data set; only its training interactions are read.
        popular: HR@10 of the ranking by popularity on the validation.
    """
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    users, items = read_interactions(spec, TRAIN)
    num_users, num_items = num_users_and_items(spec)
    counts = np.bincount(items, minlength=num_items)
    keys = np.sort(keys_of(users, items, num_items))
    negatives = draw_unseen(np.arange(num_users), num_items, keys, 99, CHOOSING_SEED)
    chance = np.random.default_rng(CHOOSING_SEED).exponential(size=len(items))

    def held(power: float) -> np.ndarray:
        """The row of each user that is held out: of exponential times over weights the least."""
        order = np.argsort(chance / counts[items] ** power)
        return order[np.unique(users[order], return_index=True)[1]]

    least, most = -1.0, 0.0
    for _ in range(12):
        power = (least + most) / 2
        series = np.concatenate([items[held(power)][:, None], negatives], axis=1)
        results, _ = popularity_of(counts, series, np.arange(series.shape[1])[None] == 0)
        least, most = (power, most) if results < popular else (least, power)
    left = np.delete(np.arange(len(users)), held(power))
    output.mkdir()
    columns = {
        TRAIN: (users[left], items[left]),
        VALIDATION: (np.repeat(np.arange(num_users), series.shape[1]), series.ravel()),
    }
    source = {}
    for mapping, (user, item) in columns.items():
        arrays = {"user": user.astype(np.int32), "item": item.astype(np.int32)}
        if mapping == VALIDATION:
            arrays["label"] = np.tile(np.arange(series.shape[1]) == 0, num_users)
        for name, values in arrays.items():
            values.tofile(output / f"{mapping}_{name}.bin")
        source[mapping] = [
            {"type": "split_binary", "features": [name], "files": [f"{mapping}_{name}.bin"]}
            for name in arrays
        ]
    content = {
        **spec.to_dict(),
        "source_spec": source,
        "metadata": {series_key(VALIDATION): series.shape[1]},
    }
    FeatureSpec.from_dict(content, output).to_yaml(output / "feature_spec.yaml")


def train(rows: Path, folder: Path, flags, seed: int, mapping: str) -> dict[str, Any]:
    """Trains, then evaluates the last model once; metrics, and seconds of training."""
    model = folder / f"model-{seed}"
    common = ("ncf.py", f"--data={rows}", f"--seed={seed}", "--print_freq=100000")
    saved = (f"--save_checkpoint_path={model}", "--evals_per_epoch=0")
    run(*common, *flags, *saved, f"--run_dir={folder}")
    training = summary(folder)
    load = (f"--restore_checkpoint_path={model}", "--mode=test", f"--eval_mapping={mapping}")
    run(*common, *load, f"--run_dir={folder}")
    return {**summary(folder), "training_s": training["elapsed_s"], "seed": seed}


def summary(run_dir: Path) -> dict[str, Any]:
    """The last line of a run's log."""
    last = (run_dir / "log.json").read_text().splitlines()[-1]
    return json.loads(last.removeprefix("DLLL "))["data"]


def popularity(rows: Path) -> tuple[float, float]:
    """HR@10 and NDCG@10 on the test series of the number of training interactions of an item."""
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    num_items = num_users_and_items(spec)[1]
    counts = np.bincount(read_interactions(spec, TRAIN).items, minlength=num_items)
    series = read_series(spec, TEST)
    return popularity_of(counts, series.items, series.labels)


def popularity_of(counts, items, labels) -> tuple[float, float]:
    """HR@10 and NDCG@10 of `counts` of the items of series, whose positives have label 1."""
    labels = np.broadcast_to(labels, items.shape)
    ranks = ranks_of_positives(items, labels, counts[items].astype(float))
    by_rank = np.bincount(ranks, minlength=items.shape[1])
    return hit_rate(by_rank, 10), ndcg(by_rank, 10)


def measure(task: Task, data: Path, seeds: int, folder: Path) -> dict[str, Any]:
    """Chooses by validation, then trains with each seed."""
    rows = prepare(task, data, folder)
    tried = {}
    for name, flags in task.candidates.items():
        tried[name] = train(rows[VALIDATION], folder, flags, CHOOSING_SEED, VALIDATION)
        print(name, [round(tried[name][metric], 4) for metric in METRICS], flush=True)
        (folder / f"model-{CHOOSING_SEED}").rename(folder / f"tried-{len(tried)}")
    chosen = max(tried, key=lambda name: tried[name]["ndcg@10"])
    results = []
    for seed in range(1, seeds + 1):
        results.append(train(rows[TEST], folder, task.candidates[chosen], seed, TEST))
        print("test, seed", seed, [round(results[-1][m], 4) for m in METRICS], flush=True)
    return {
        "tried": tried,
        "chosen": chosen,
        "found": results,
        "popular": popularity(rows[TEST]),
        "time_to_target": time_to(task, rows[TEST], folder, task.candidates[chosen]),
    }


def time_to(task: Task, rows: Path, folder: Path, flags) -> float | None:
    """Seconds of training, evaluations among them, until the published HR@10 is there.

    One more seed, with an evaluation after each epoch: nothing is chosen by it.
    """
    threshold = f"--threshold={task.published[0]}"
    run("ncf.py", f"--data={rows}", "--seed=0", *flags, threshold, f"--run_dir={folder}")
    return summary(folder).get("time_to_target")


def page(results: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    lines = ["# Accuracy of NeuMF on the splits of published papers", ""]
    command = f"`python -m benchmarks.ncf_accuracy {' '.join(sys.argv[1:])}`"
    lines += [command, "", facts]
    lines += [
        "",
        "Settings: the best NDCG@10 on a training interaction of each user held out, of Last.fm at",
        "random, of MovieLens as popular as the test's (the files have no times; see the script),",
        f"among 99 drawn negatives, with seed {CHOOSING_SEED}. Then other seeds train on all",
        "training interactions and look at the test file once, after the last epoch.",
        "Published: NeuMF in DeepCF (AAAI 2019); popularity: how often an item was taken;",
        "to the target: until the published HR@10, with an evaluation after each epoch, one seed.",
        "",
        "| data | seeds | HR@10 mean (lowest, highest) | NDCG@10 mean (lowest, highest) | "
        "published | popularity | seconds of training, median | seconds to the target |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in results.items():
        cells = []
        for metric in METRICS:
            values = [run[metric] for run in result["found"]]
            low, high = min(values), max(values)
            cells.append(f"{statistics.mean(values):.4f} ({low:.4f}, {high:.4f})")
        published, popular = TASKS[name].published, result["popular"]
        to_target = result["time_to_target"]
        seconds = statistics.median(run["training_s"] for run in result["found"])
        lines.append(
            f"| {name} | {len(result['found'])} | {cells[0]} | {cells[1]} | "
            f"{published[0]:.4f} / {published[1]:.4f} | {popular[0]:.4f} / {popular[1]:.4f} | "
            f"{seconds:.0f} | {'not reached' if to_target is None else f'{to_target:.0f}'} |"
        )
    for name, result in results.items():
        lines += ["", f"Settings tried on {name}, by the held-out training interaction:", ""]
        lines += ["| settings | HR@10 | NDCG@10 | |", "| --- | ---: | ---: | --- |"]
        for settings, values in result["tried"].items():
            chosen = "chosen" if settings == result["chosen"] else ""
            flags = " ".join(TASKS[name].candidates[settings])
            figures = f"{values['hr@10']:.4f} | {values['ndcg@10']:.4f}"
            lines.append(f"| `{flags}` | {figures} | {chosen} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prepares, chooses, trains and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the page, Markdown")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=list(TASKS), help="one data set")
    parser.add_argument("--kept", type=Path, help="JSON file: keeps what was found so far")
    args = parser.parse_args()
    results = json.loads(args.kept.read_text()) if args.kept and args.kept.exists() else {}
    for name in [args.only] if args.only else TASKS:
        if name in results:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            results[name] = measure(TASKS[name], args.data, args.seeds, Path(temporary))
        if args.kept:
            args.kept.write_text(json.dumps(results, indent=1))
    args.output.write_text(page(results))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
