"""Checks of paths before TensorFlow is imported, which takes seconds."""

import sys
from pathlib import Path

from config import Config
from config.sections import RANKING
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from runtime import checkpoint
from runtime.checkpoint.reader import describe
from runtime.cluster import launcher
from runtime.files import predictions

# Raw data of the public data sets, and what prepares them.
_RAW_DATA = {
    "day_*": "preproc.criteo",
    "train*.txt": "preproc.criteo",
    "ratings*": "preproc.movielens",
    "*.json.gz": "preproc.amazon_books",
    "*.csv": "dataloading.transcode",
}


def check_paths(config: Config) -> None:
    """Reads what the paths on the command line name, as far as that needs no TensorFlow.

    Of several processes only the first one on each machine checks: it ends with exit code 2 before
    it connects, and the launcher ends the others. Everything is checked again, by all ranks
    together, once they are connected. In an elastic training, ranks may fail alone: nothing is
    checked early.

    Raises:
      ValueError: a path cannot be used.
      OSError: a file cannot be read.
    """
    local_rank = launcher.local_rank()
    if "tensorflow" in sys.modules or local_rank != 0 or config.distribution.elastic:
        return
    saved, run, resume = config.checkpoint, config.run, config.checkpoint.resume
    if saved.restore_checkpoint_path:
        describe(checkpoint.resolve(saved.restore_checkpoint_path))
    elif resume and resume != "auto" and run.mode == "train":
        describe(checkpoint.resolve(resume, "--resume"))
    spec = load_feature_spec(config)
    is_binary = config.recipe in RANKING and config.data.dataset_type == "tf_raw"
    if spec and is_binary and run.mode == "train":
        from dataloading.formats.raw_binary import RawBinaryDataset

        RawBinaryDataset(spec, TRAIN, run.batch_size)
    if run.mode == "predict" and launcher.launched() is None:
        predictions.check_writable(run.predictions_path)


def load_feature_spec(config: Config) -> FeatureSpec | None:
    """Returns the data set's description; None for rows that are generated from flags.

    Raises:
      ValueError: the file does not exist, or it breaks a rule.
    """
    if not config.data.dataset_path:
        return None
    folder = Path(config.data.dataset_path)
    if folder.is_file():
        raise ValueError(
            f"--dataset_path {folder}: expected the folder of a data set, got a file; give its "
            f"folder, {folder.parent}"
        )
    file = folder / config.data.feature_spec
    if folder.is_dir() and not file.exists() and (tool := _preparation_of(folder)):
        raise ValueError(
            f"--dataset_path {folder}: expected a prepared data set with {file.name}, got raw "
            f"data; prepare it: python -m {tool} --input {folder} --output PREPARED"
        )
    return FeatureSpec.from_yaml(file)


def _preparation_of(folder: Path) -> str | None:
    """Returns the module that prepares the raw data in a folder; None without raw data."""
    return next((tool for names, tool in _RAW_DATA.items() if any(folder.glob(names))), None)
