"""Data sets whose vocabularies grew from those of earlier ones (`transcode --grow`).

Values keep their ids, and new ones follow. If values were evicted, the ids of the others moved up;
`vocabulary/FEATURE.previous_ids.npy` has the former ids of those that stayed, ascending.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataloading.keys.vocabulary import text_file
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.output_folder import METADATA


def previous_ids_file(text: Path) -> Path:
    """Returns the file of the former ids next to a vocabulary."""
    return text.with_suffix(".previous_ids.npy")


def last_seen_file(text: Path) -> Path:
    """Returns the Parquet file of the days on which values occurred next to a vocabulary."""
    return text.with_suffix(".last_seen.parquet")


@dataclass(frozen=True)
class Growth:
    """Growth of a data set from earlier ones.

    Attributes:
        ancestors: fingerprints of the data sets whose ids it continues, the latest first; with
            evicted values only the latest.
        evicted: features of which values were evicted -> file of the former ids.
    """

    ancestors: tuple[str, ...] = ()
    evicted: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def from_spec(cls, spec: FeatureSpec | None) -> "Growth":
        """Returns the growth that the metadata of a data set describe."""
        own = spec.metadata.get(METADATA) if spec else None
        if spec is None or not isinstance(own, dict):
            return cls()
        files = {name: spec.base_directory / text_file(name) for name in own.get("evicted", ())}
        evicted = {name: previous_ids_file(file) for name, file in files.items()}
        return cls(tuple(own.get("grown_from", ())), evicted)

    def kept_rows(self, fingerprint: str | None) -> dict[str, NDArray[Any]] | None:
        """Returns which rows of the tables of a checkpoint are those of the first ids.

        Args:
            fingerprint: of the data set of the checkpoint; None if it is unknown.

        Returns:
            Feature -> rows, ascending; features that are absent keep all rows. None: ids moved in
            an unknown way, so that tables must have equal numbers of rows.
        """
        if not self.evicted:
            return {}
        if fingerprint not in self.ancestors:
            return None
        return {name: np.load(file, mmap_mode="r") for name, file in self.evicted.items()}
