"""Test AUC of SIM, DIN and a model without history, trained without flags, and of popularity.

python -m benchmarks.sequence_defaults --data FOLDER --output PAGE

FOLDER holds `amazon_musical/Musical_Instruments.json` (reviews) and `amazon_grocery/` (see
`sequence_accuracy`). The last event of a user is the test event, the one before it validates. Each
model is trained with the flags that `--preset auto` chooses, and looks at the test events once,
after the last epoch.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.result_page import parse, table
from benchmarks.harness.studies import StudyOptions, mean_and_range, run, study_page, summary_of
from benchmarks.sequence_accuracy import prepare
from config.flag import flag
from dataloading.spec.feature_spec import FeatureSpec
from recipes.baseline.histories import popularity_auc

MODELS = {"no history": "no_history", "DIN": "din", "SIM": "sim"}
MUSICAL, GROCERY = DATA_SETS = ("amazon_musical", "amazon_grocery")


def prepare_reviews(data: Path, histories: Path) -> None:
    """Prepares reviews without metadata; a user's last but one event validates."""
    reviews = data / "Musical_Instruments.json"
    events = ("--min_events", 5, "--validation_event")
    files = ("--reviews", reviews, "--no_metadata", "--output_path", histories)
    run("-m", "preproc.amazon_books", *files, *events)


def train(histories: Path, folder: Path, model_type: str, seed: int) -> tuple[float, float]:
    """Trains without flags; returns the AUC of test, and seconds of training."""
    run(
        *("sim.py", f"--dataset_path={histories}", f"--model_type={model_type}", f"--seed={seed}"),
        *("--eval_mapping=test", f"--results_dir={folder}", "--noevaluate_training_rows"),
    )
    summary = summary_of(folder)
    return summary["test_auc"], summary["time_to_train"]


@dataclass(frozen=True, kw_only=True)
class DefaultsStudyOptions(StudyOptions):
    """Flags of the study."""

    only: str | None = flag(None, "one data set", choices=tuple(DATA_SETS))


def main() -> int:
    """Prepares, trains and writes the page."""
    args = parse(DefaultsStudyOptions, None, "sequence_defaults", __doc__)
    rows = []
    for name in [args.only] if args.only else DATA_SETS:
        with tempfile.TemporaryDirectory() as temporary:
            histories = Path(temporary) / "histories"
            (prepare_reviews if name == MUSICAL else prepare)(args.data / name, histories)
            for model, model_type in MODELS.items():
                runs = [
                    train(histories, Path(temporary), model_type, seed)
                    for seed in range(1, args.seeds + 1)
                ]
                aucs, seconds = zip(*runs, strict=True)
                print(name, model, [round(auc, 4) for auc in aucs], flush=True)
                rows.append((name, model, mean_and_range(aucs), f"{min(seconds):.0f}"))
            spec = FeatureSpec.from_yaml(histories / "feature_spec.yaml")
            rows.append((name, "popularity", f"{popularity_auc(spec, 'test'):.4f}", ""))
    facts = [
        "the last event of a user is the test event, the one before it the validation event, by "
        "which nothing is chosen here; each with a random item",
        f"flags: those of the preset; seeds 1 to {args.seeds} look at the test events once, after "
        "the last epoch",
    ]
    columns = ("data", "model", "mean test AUC (range)", "seconds of training, shortest")
    title = "Accuracy of the sequential models with their default settings"
    results = table(columns, rows, num_text=2)
    return study_page(title, "sequence_defaults", facts, results).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
