"""Test AUC of SIM, DIEN, DIN, a model without history, and popularity, over seeds.

python -m benchmarks.sequence_accuracy --data FOLDER --output PAGE

FOLDER holds `train.csv` (user_id, item_id, time; tab-separated) and `item_meta.csv` (item_id and a
category), or reviews (`.json`). A user's last event is the test event, the one before it the
validation event. Settings, and the number of epochs, are chosen by the validation events with one
seed; then each model is trained with other seeds and looks at the test events once, at the end.
With --defaults nothing is chosen: the flags are those of the preset.
"""

import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.result_page import Page, parse, table
from benchmarks.harness.studies import (
    CHOOSING_SEED,
    StudyOptions,
    choose,
    curve_of,
    mean_and_range,
    run,
)
from config.flag import flag
from dataloading.spec.feature_spec import FeatureSpec
from recipes.baseline.histories import popularity_auc

MODELS = {"no history": "no_history", "DIN": "din", "SIM": "sim", "DIEN": "dien"}
# Every combination is tried for every model.
RATES, DROPOUTS, EPOCHS = (0.003, 0.01), (-1, 0.5), 5
COMMON = "--preset=terabyte --global_batch_size=1024 --embedding_dim=16"


@dataclass(frozen=True, kw_only=True)
class SequenceStudyOptions(StudyOptions):
    """Flags of the study."""

    defaults: bool = flag(False, "train with the flags of the preset")


def prepare(data: Path, histories: Path) -> None:
    """Prepares events; a user's last but one validates."""
    files = ("--interactions", data / "train.csv", "--items", data / "item_meta.csv")
    flags = (*files, "--input_format", "csv", "--delimiter", "tab", "--min_events", 3)
    flags += ("--item_features", "i_category")
    for reviews in data.glob("*.json"):
        flags = ("--reviews", reviews, "--no_metadata", "--min_events", 5)
    run("-m", "preproc.amazon_books", *flags, "--validation_event", "--output_path", histories)


def measure(args: SequenceStudyOptions, histories: Path, folder: Path, model_type: str) -> tuple:
    """Chooses and trains; returns settings, epochs, validation AUC and test AUC of a model."""

    def curve(flags: str, split: str = "validation", seed: int = CHOOSING_SEED) -> list[float]:
        common = (f"--dataset_path={histories}", f"--model_type={model_type}", *flags.split())
        where = (f"--eval_mapping={split}", f"--results_dir={folder}", "--noevaluate_training_rows")
        run("sim.py", *common, *where, f"--seed={seed}")
        return curve_of(folder, f"{split}_auc")

    settings, epochs, validation_auc, flags = "", "", "", ""
    if not args.defaults:
        candidates = itertools.product(RATES, DROPOUTS)
        settings, epochs, value = choose(
            (f"--lr={rate} --dropout_rate={dropout}" for rate, dropout in candidates),
            lambda flags: curve(f"{COMMON} --epochs={EPOCHS} {flags}"),
        )
        validation_auc, flags = f"{value:.4f}", f"{COMMON} --epochs={epochs} {settings}"
    aucs = [curve(flags, "test", seed)[-1] for seed in range(1, args.seeds + 1)]
    print(model_type, [round(auc, 4) for auc in aucs], flush=True)
    return settings, epochs, validation_auc, mean_and_range(aucs)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepares, chooses, trains and writes the page."""
    args = parse(SequenceStudyOptions, argv, "sequence_accuracy", __doc__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        histories = folder / "histories"
        prepare(args.data, histories)
        rows = [(name, *measure(args, histories, folder, kind)) for name, kind in MODELS.items()]
        spec = FeatureSpec.from_yaml(histories / "feature_spec.yaml")
        popular = [f"{popularity_auc(spec, m):.4f}" for m in ("validation", "test")]
    columns = ("model", "settings", "epochs", "validation AUC (one seed)", "mean test AUC (range)")
    facts = [
        "the last event of a user is the test event, the one before the validation event; each "
        "with a random item",
        f"settings: the best of rates {RATES}, dropout {DROPOUTS} and up to {EPOCHS} epochs by the "
        f"validation AUC of seed {CHOOSING_SEED}; {COMMON}",
        f"seeds 1 to {args.seeds} look at the test events once, after the last epoch",
    ]
    if args.defaults:
        facts[1] = "settings: those of the preset"
    page = Page("Accuracy of the sequential models", "sequence_accuracy", args, facts)
    page.add("Results", *table(columns, [*rows, ("popularity", "", "", *popular)], num_text=2))
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
