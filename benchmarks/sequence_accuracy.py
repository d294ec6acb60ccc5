"""Test AUC of SIM, DIEN, DIN, a model without history, and popularity, over seeds.

python -m benchmarks.sequence_accuracy --data FOLDER --output PAGE

FOLDER holds `train.csv` (user_id, item_id, time; tab-separated) and `item_meta.csv` (item_id and a
category). A user's last event is the test event, the one before it the validation event. Settings,
and the number of epochs, are chosen by the validation events with one seed; then each model is
trained with other seeds and looks at the test events once, at the end.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet

from benchmarks.harness.machine import describe
from benchmarks.harness.recipe_runs import run
from nn.metrics.classification import make_metrics

MODELS = {
    "no history": ("--model_type=no_history",),
    "DIN": ("--model_type=din",),
    "SIM": ("--model_type=sim",),
    "DIEN": ("--model_type=dien",),
}
# Every combination is tried for every model.
CHOICES = {"lr": (0.003, 0.01), "dropout_rate": (-1, 0.5)}
COMMON = (
    "--preset=terabyte",
    "--global_batch_size=1024",
    "--embedding_dim=16",
    "--noevaluate_training_rows",
)
CHOOSING_SEED = 100


def prepare(data: Path, folder: Path) -> Path:
    """Parquet and TFRecords by the documented commands; returns the folder of the latter."""
    parquet, records = folder / "parquet", folder / "tfrecord"
    run(
        *("-m", "preproc.amazon_books", "--input_format", "csv", "--delimiter", "tab"),
        *("--interactions", data / "train.csv", "--items", data / "item_meta.csv"),
        *("--item_features", "i_category", "--min_events", 3, "--validation_event"),
        *("--output_path", parquet),
    )
    run(
        *("-m", "preproc.amazon_books.parquet_to_tfrecord", "--amazon_dataset_path", parquet),
        *("--tfrecord_output_dir", records),
        *("--prebatch_train_size", 1024, "--prebatch_test_size", 1024),
    )
    return records


def train(records: Path, folder: Path, flags, seed: int, epochs: int, mapping: str) -> list[float]:
    """Trains; returns the AUC over the rows of `mapping` after each epoch."""
    run(
        *("sim.py", f"--dataset_dir={records}", *COMMON, *flags, f"--seed={seed}"),
        *(f"--epochs={epochs}", f"--eval_mapping={mapping}", f"--results_dir={folder}"),
    )
    results = []
    for line in (folder / "log.json").read_text().splitlines():
        entry = json.loads(line.removeprefix("DLLL "))
        if isinstance(entry.get("step"), list) and len(entry["step"]) == 1:
            results.append(entry["data"][f"{mapping}_auc"])
    return results


def choose(records: Path, folder: Path, epochs: int, kept: Path | None) -> dict[str, dict]:
    """For each model the settings and the number of epochs with the best validation AUC.

    Args:
        kept: JSON file of what was chosen before, and where it is kept.
    """
    chosen = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for model, flags in MODELS.items():
        tried = []
        if model in chosen:
            continue
        for values in itertools.product(*CHOICES.values()):
            settings = dict(zip(CHOICES, values, strict=True))
            wanted = (*flags, *(f"--{name}={value}" for name, value in settings.items()))
            curve = train(records, folder, wanted, CHOOSING_SEED, epochs, "validation")
            best = int(np.argmax(curve))
            tried.append((curve[best], best + 1, wanted, settings))
            print(model, settings, [round(auc, 4) for auc in curve], flush=True)
        auc, best_epochs, wanted, settings = max(tried, key=lambda entry: entry[0])
        chosen[model] = {
            "flags": wanted,
            "settings": settings,
            "epochs": best_epochs,
            "validation_auc": auc,
        }
        if kept:
            kept.write_text(json.dumps(chosen, indent=1))
    return chosen


def popularity(parquet: Path, mapping: str) -> float:
    """AUC of the number of training events of the target item."""
    columns = ["label", "item_id_trgt"]
    tables = (pyarrow.parquet.read_table(parquet / m, columns=columns) for m in ("train", mapping))
    (clicked, shown), (labels, items) = (
        [table[name].to_numpy() for name in columns] for table in tables
    )
    counts = np.bincount(shown[clicked == 1], minlength=1 + max(shown.max(), items.max()))
    metrics = make_metrics(None)
    metrics.update(labels, counts[items].astype(np.float32))
    return metrics.result().auc


def page(chosen: dict, results: dict, popular: dict, num_seeds: int) -> str:
    """The results as Markdown."""
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    columns = "model | settings | epochs | validation AUC (one seed) | mean test AUC | range"
    lines = [
        "# Accuracy of the sequential models on amazon_grocery",
        "",
        "`python -m benchmarks.sequence_accuracy --data ../shared/data/amazon_grocery ...`",
        "",
        facts,
        "",
        "All 14,681 users (3 events or more), 8,687 items, 121,892 events. The last event of a",
        "user is the test event, the one before the validation event; each with a random item.",
        f"Settings: the best of {CHOICES} and up to 5 epochs by",
        f"the validation AUC of seed {CHOOSING_SEED}. Then {num_seeds} other seeds look at the",
        "test events once, after the last epoch.",
        f"All: {' '.join(COMMON)}; other flags at their defaults.",
        "",
        f"| {columns} |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for model, aucs in results.items():
        choice = chosen[model]
        settings = " ".join(f"--{name}={value}" for name, value in choice["settings"].items())
        lines.append(
            f"| {model} | {settings} | {choice['epochs']} | {choice['validation_auc']:.4f} | "
            f"{statistics.mean(aucs):.4f} | {min(aucs):.4f}, {max(aucs):.4f} |"
        )
    lines.append(f"| popularity | | | {popular['validation']:.4f} | {popular['test']:.4f} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prepares, chooses, trains and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the page, Markdown")
    parser.add_argument("--chosen", type=Path, help="JSON file: keeps the choice")
    parser.add_argument("--epochs", type=int, default=5, help="most epochs to choose from")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records = prepare(args.data, folder)
        chosen = choose(records, folder, args.epochs, args.chosen)
        results = {}
        for model, choice in chosen.items():
            results[model] = [
                train(records, folder, choice["flags"], seed, choice["epochs"], "test")[-1]
                for seed in range(1, args.seeds + 1)
            ]
            print(model, [round(auc, 4) for auc in results[model]], flush=True)
        popular = {m: popularity(folder / "parquet", m) for m in ("validation", "test")}
    args.output.write_text(page(chosen, results, popular, args.seeds))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
