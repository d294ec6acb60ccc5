"""Files of a data set: names, and the rule that splits which a tool writes have their own."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

SPEC_FILE = "feature_spec.yaml"
ENCODER_FOLDER = "encoder"  # of a data set, next to its feature spec
VOCABULARY_FOLDER = "vocabulary"  # in it, or next to the feature spec
CHECKS_FILE = "checks.json"  # findings of checks of the data, see `data_checks`
METADATA = "transcode"  # key of what transcode stores in the metadata of a data set


def check_files_apart(sources: Mapping[str, Sequence[Any]], origin: str) -> None:
    """Raises ValueError if a file is in two splits, so that one could not be written.

    Args:
        sources: name of each split -> its chunks, of a checked feature spec.
        origin: name of the feature spec in messages.
    """
    split_of: dict[str, str] = {}
    for split, chunks in sources.items():
        for file in sorted({posixpath.normpath(f) for chunk in chunks for f in chunk.files}):
            if file in split_of:
                raise ValueError(
                    f"{origin}: source_spec: file '{file}' is in the splits '{split_of[file]}' and "
                    f"'{split}'; expected a file of its own for each split that is written"
                )
            split_of[file] = split
