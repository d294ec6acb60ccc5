"""Checks of paths before TensorFlow is imported, which takes seconds."""

import sys

from config import Config
from config.flag import RANKING
from dataloading.spec.feature_spec import TRAIN
from recipes.from_flags import load_feature_spec
from runtime import checkpoint
from runtime.checkpoint.reader import describe
from runtime.cluster import launcher
from runtime.files import predictions


def check_paths(config: Config) -> None:
    """Reads the files that the command line names, as far as that needs no TensorFlow.

    Only the first process on each machine checks; the launcher ends the others if it fails. All
    ranks check everything again once they are connected. In an elastic training, where ranks may
    fail alone, nothing is checked early.

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
    is_binary = config.flag_set in RANKING and config.data.dataset_type == "tf_raw"
    if spec and is_binary and run.mode == "train":
        from dataloading.formats.raw_binary import RawBinaryDataset

        RawBinaryDataset(spec, TRAIN, run.batch_size)
    if run.mode == "predict" and run.predictions_path and launcher.launched() is None:
        predictions.check_writable(run.predictions_path)
