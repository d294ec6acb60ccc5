"""Bins of numerical features (`--numerical_embedding bins`), those of the data set's encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from config.config import Config
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import ENCODER_FOLDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def count_bins(config: Config, spec: fs.FeatureSpec) -> int:
    """Returns the largest number of bins of a numerical feature; 0: features stay numbers.

    A checkpoint's flags have it, so that its model is built without the data set.

    Raises:
        ValueError: the data set has no bins.
    """
    features, flags = spec.channel(fs.NUMERICAL_CHANNEL), config.family_flags
    if flags.numerical_embedding != "bins" or not features:
        return 0
    if flags.numerical_bins:
        return int(flags.numerical_bins)
    edges = _read_edges(spec)
    if edges is None:
        raise ValueError(_missing_bins(spec))
    return max(len(column) - 1 for column in edges)


def has_bins(spec: fs.FeatureSpec) -> bool:
    """Returns whether a model of the data set can have bins (`--preset small`)."""
    return bool(spec.channel(fs.NUMERICAL_CHANNEL)) and _read_edges(spec) is not None


def edges_of_numbers(config: Config, spec: fs.FeatureSpec) -> list[NDArray[np.float32]] | None:
    """Returns the edges of the bins of each numerical feature, at most `count_bins` bins.

    Returns:
        None: the features stay numbers, or a checkpoint sets the edges.

    Raises:
        ValueError: the data set has no bins.
    """
    import numpy as np

    num_bins = count_bins(config, spec)
    if not num_bins or config.run.mode != "train":
        return None
    edges = _read_edges(spec)
    if edges is None and not config.checkpoint.restore_checkpoint_path:
        raise ValueError(_missing_bins(spec))
    if edges is None:
        return None

    lasts = [len(column) - 1 for column in edges]
    kept = [np.linspace(0, last, min(last, num_bins) + 1).round().astype(int) for last in lasts]
    return [column[indices] for column, indices in zip(edges, kept, strict=True)]


def note_no_numbers(config: Config, spec: fs.FeatureSpec) -> str:
    """Returns a note if the command line asks for bins of numbers that are not there, or ""."""
    is_unread = "numerical_embedding" in config.explicit and not spec.channel(fs.NUMERICAL_CHANNEL)
    if not is_unread or config.family_flags.numerical_embedding == "none":
        return ""
    return "--numerical_embedding bins has no effect: the data set has no numerical features"


def _read_edges(spec: fs.FeatureSpec) -> list[NDArray[np.float32]] | None:
    from preproc.encoding import encoder_folder as encoder
    from preproc.encoding.numbers import bin_edges

    folder = Path(spec.base_directory) / ENCODER_FOLDER
    if not folder.is_dir():
        return None
    channel = fs.NUMERICAL_CHANNEL
    content = encoder.read(folder, has_values=False)
    features = spec.channel(channel), spec.hotnesses(channel)
    return bin_edges(content.features, content.profile, *features)


def _missing_bins(spec: fs.FeatureSpec) -> str:
    return (
        "--numerical_embedding bins: expected a data set whose encoder has bins of its numerical "
        f"features, got {spec.origin or 'generated samples'}: prepare it with preproc.transcode, "
        "or use --numerical_embedding none"
    )
