"""Flags that several commands have in common, and their checks."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.files import outputs
from runtime.options import check_range


def add_request_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the rows that are sent: see `deployment.model.data_set.described`."""
    add = parser.add_argument
    add("--checkpoint_dir", help="deployed checkpoint, whose data set is sent")
    path_help = "folder of the data set, if it is not that of the training; of DLRM and DCNv2 also"
    add("--dataset_path", help=f"{path_help} without --checkpoint_dir")
    add("--feature_spec", help="its specification, without a checkpoint (feature_spec.yaml)")
    formats = "tf_raw", "synthetic", "split_tfrecords"
    add("--dataset_type", choices=formats, help="its format, without a checkpoint (tf_raw)")
    add("--wait_s", type=float, default=0.0, help="seconds to wait for server and models")
    fused = "all tables are one; only for a model of HPS that NVIDIA's tools deployed"
    add("--fused_embedding", action="store_true", help=fused)


def distinct_integers(text: str) -> tuple[int, ...]:
    """Parses a flag like `1,64`; raises ValueError for anything but different integers."""
    numbers = tuple(int(part) for part in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise ValueError
    return numbers


def check_ranges(
    flags: Mapping[str, Any],
    minimum: Mapping[str, float],
    maximum: Mapping[str, float] | None = None,
) -> None:
    """Raises ValueError for a flag outside its limits; see `runtime.options.check_range`."""
    for name, least in minimum.items():
        check_range(name, flags[name], least, (maximum or {}).get(name))


def refuse(contradictions: Mapping[str, object]) -> None:
    """Raises ValueError for the first contradiction, a flag and the reason, that holds."""
    for message, holds in contradictions.items():
        if holds:
            raise ValueError(message)


def check_writable(path: Path, flag: str) -> None:
    """Creates the folder of a file; raises ValueError if the file cannot be written."""
    try:
        outputs.check_writable(path)
    except OSError as error:
        raise ValueError(
            f"{flag}: {path} cannot be written ({error.strerror}): choose another"
        ) from None
