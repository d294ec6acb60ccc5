"""Settings of the multi-hot preparation."""

import os
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import CommandOptions
from config.flag import flag
from preproc.encoding.extension import DISTRIBUTIONS


@dataclass(frozen=True)
class MultiHotOptions(CommandOptions):
    """One run; `python -m preproc.criteo.multi_hot --help` describes each field.

    Raises:
        ValueError: A value is out of range.
    """

    input: Path = flag(
        MISSING,
        "prepared data set with one id per feature, or folder of the day_N_*.npy or "
        "day_N_sparse_multi_hot.npz files of MLPerf's reference",
        alias="--in_memory_binary_criteo_path",
    )
    output: Path = flag(
        MISSING, "folder of the multi-hot data set; appears when complete", alias="--output_path"
    )
    hotness: tuple[int, ...] | None = flag(
        None,
        "ids per sample of each feature, or one number for all (default: those of MLPerf)",
        alias="--multi_hot_sizes",
        at_least=1,
    )
    cardinalities: tuple[int, ...] | None = flag(
        None,
        "rows of each table; ids are taken modulo these (default: those of the data set; for .npy "
        "files those of MLPerf)",
        alias="--num_embeddings_per_feature",
        at_least=1,
    )
    distribution: str = flag(
        "uniform",
        "distribution of the added ids (default uniform)",
        alias="--multi_hot_distribution_type",
        choices=DISTRIBUTIONS,
    )
    processes: int = flag(
        lambda: len(os.sched_getaffinity(0)), "threads (default: the available cores)", at_least=1
    )
    overwrite: bool = flag(False, "replace an earlier data set in --output")

    def numbers(self, name: str, count: int) -> list[int] | None:
        """Returns the values of a flag, one for each of `count` features; None without the flag.

        Raises:
            ValueError: Another number of values.
        """
        values = getattr(self, name)
        if values is not None and len(values) not in (1, count):
            raise ValueError(
                f"--{name} has {len(values)} values; expected one for each of the {count} "
                "categorical features, or one for all"
            )
        return values and [*values] * (count // len(values))
