"""Test AUC of SIM, DIEN, DIN, a model without history, and popularity, over seeds.

python -m benchmarks.sequence_accuracy --data FOLDER --output PAGE

FOLDER holds `train.csv` (user_id, item_id, time; tab-separated) and `item_meta.csv` (item_id and a
category). A user's last event is the test event, the one before it the validation event. Settings,
and the number of epochs, are chosen by the validation events with one seed; then each model is
trained with other seeds and looks at the test events once, at the end.
"""

import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness.result_page import parse, table
from benchmarks.harness.studies import (
    StudyOptions,
    log_of,
    mean_and_range,
    run,
    study_page,
)
from config.flag import flag
from dataloading.spec.feature_spec import FeatureSpec
from recipes.baseline.histories import popularity_auc

MODELS = {"no history": "no_history", "DIN": "din", "SIM": "sim", "DIEN": "dien"}
# Every combination is tried for every model.
CHOICES = {"lr": (0.003, 0.01), "dropout_rate": (-1, 0.5)}
BATCH_SIZE = 1024
COMMON = f"--preset=terabyte --global_batch_size={BATCH_SIZE} --embedding_dim=16"
COMMON += " --noevaluate_training_rows"
CHOOSING_SEED = 100


def prepare(data: Path, histories: Path) -> None:
    """Prepares purchases; a user's last but one event validates."""
    files = ("--interactions", data / "train.csv", "--items", data / "item_meta.csv")
    form = ("--input_format", "csv", "--delimiter", "tab", "--item_features", "i_category")
    events = ("--min_events", 3, "--validation_event")
    run("-m", "preproc.amazon_books", *form, *files, *events, "--output_path", histories)


def train(
    histories: Path, folder: Path, flags: Sequence[str], seed: int, epochs: int, split: str
) -> list[float]:
    """Trains; returns the AUC of a split after each epoch."""
    run(
        *("sim.py", f"--dataset_path={histories}", *COMMON.split(), *flags, f"--seed={seed}"),
        *(f"--epochs={epochs}", f"--eval_mapping={split}", f"--results_dir={folder}"),
    )
    return [
        entry["data"][f"{split}_auc"]
        for entry in log_of(folder)
        if isinstance(entry.get("step"), list) and len(entry["step"]) == 1
    ]


def choose(histories: Path, folder: Path, model_type: str, epochs: int) -> dict:
    """The settings and the number of epochs of a model with the best validation AUC."""
    tried = []
    for values in itertools.product(*CHOICES.values()):
        settings = dict(zip(CHOICES, values, strict=True))
        flags = [f"--model_type={model_type}"]
        flags += [f"--{name}={value}" for name, value in settings.items()]
        curve = train(histories, folder, flags, CHOOSING_SEED, epochs, "validation")
        best = int(np.argmax(curve))
        choice = {"flags": flags, "settings": settings, "epochs": best + 1}
        tried.append({**choice, "validation_auc": curve[best]})
        print(flags, [round(auc, 4) for auc in curve], flush=True)
    return max(tried, key=lambda choice: choice["validation_auc"])


@dataclass(frozen=True, kw_only=True)
class SequenceStudyOptions(StudyOptions):
    """Flags of the study."""

    epochs: int = flag(5, "most epochs to choose from", at_least=1)


def main() -> int:
    """Prepares, chooses, trains and writes the page."""
    args = parse(SequenceStudyOptions, None, "sequence_accuracy", __doc__)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        histories = folder / "histories"
        prepare(args.data, histories)
        for model, model_type in MODELS.items():
            choice = choose(histories, folder, model_type, args.epochs)
            epochs, aucs = choice["epochs"], []
            for seed in range(1, args.seeds + 1):
                aucs.append(train(histories, folder, choice["flags"], seed, epochs, "test")[-1])
            print(model, [round(auc, 4) for auc in aucs], flush=True)
            settings = " ".join(f"--{name}={value}" for name, value in choice["settings"].items())
            validation_auc = f"{choice['validation_auc']:.4f}"
            rows.append((model, settings, epochs, validation_auc, mean_and_range(aucs)))
        spec = FeatureSpec.from_yaml(histories / "feature_spec.yaml")
        popular = [f"{popularity_auc(spec, m):.4f}" for m in ("validation", "test")]
    columns = ("model", "settings", "epochs", "validation AUC (one seed)", "mean test AUC (range)")
    facts = [
        "the last event of a user is the test event, the one before the validation event; each "
        "with a random item",
        f"settings: the best of {CHOICES} and up to {args.epochs} epochs by the validation AUC of "
        f"seed {CHOOSING_SEED}. Then {args.seeds} other seeds look at the test events once, after "
        "the last epoch",
        f"all: {COMMON}; other flags at their defaults",
    ]
    results = table(columns, [*rows, ("popularity", "", "", *popular)], num_text=2)
    title = "Accuracy of the sequential models on amazon_grocery"
    return study_page(title, "sequence_accuracy", facts, results).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
