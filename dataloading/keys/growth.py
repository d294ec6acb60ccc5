"""Data sets whose vocabularies grew from those of earlier ones (`transcode --grow`).

Values keep their ids, and new ones follow. If values were evicted, the ids of the others moved up;
`vocabulary/FEATURE.previous_ids.npy` has the former ids of those that stayed, ascending.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataloading.keys.vocabulary import text_file
from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import FeatureSpec


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
        id_spaces: identity of the vocabularies, then those of the vocabularies whose ids they
            continue, the latest first; empty if it is unknown, as in data sets without vocabulary.
        evicted_from: identity of the vocabularies that the values were evicted from.
    """

    ancestors: tuple[str, ...] = ()
    evicted: dict[str, Path] = field(default_factory=dict)
    id_spaces: tuple[str, ...] = ()
    evicted_from: str | None = None

    @classmethod
    def from_spec(cls, spec: FeatureSpec | None) -> "Growth":
        """Returns the growth that the metadata of a data set describe."""
        own = spec.metadata.get(METADATA) if spec else None
        if spec is None or not isinstance(own, dict):
            return cls()
        files = {name: spec.base_directory / text_file(name) for name in own.get("evicted", ())}
        evicted = {name: previous_ids_file(file) for name, file in files.items()}
        id_spaces = tuple(own.get("id_spaces", ()))
        return cls(tuple(own.get("grown_from", ())), evicted, id_spaces, own.get("evicted_from"))

    def continues(self, id_spaces: Sequence[str]) -> bool:
        """Returns whether the ids of a checkpoint with these `id_spaces` keep their meaning."""
        return bool(id_spaces) and id_spaces[0] in self.id_spaces

    def check_ids(self, id_spaces: Sequence[str], where: str) -> None:
        """Raises ValueError if the rows of a checkpoint belong to other values.

        Args:
            id_spaces: those of the data set of the checkpoint; empty if they are unknown.
            where: name of the checkpoint, for the message.
        """
        if not id_spaces or not self.id_spaces or self.continues(id_spaces):
            return
        if self.id_spaces[0] in id_spaces or self.evicted_from == id_spaces[0]:
            return
        raise ValueError(
            f"{where}: its tables have the ids of other vocabularies than those of the data set. "
            "Expected the data set of the training, one that `dataloading.transcode --vocabulary` "
            "encoded with its ids, or (with --grow) one that continues them; where values were "
            "evicted, only the next one does: train on each in turn"
        )

    def kept_rows(
        self, fingerprint: str | None, id_spaces: Sequence[str] = ()
    ) -> dict[str, NDArray[Any]] | None:
        """Returns which rows of the tables of a checkpoint are those of the first ids.

        Args:
            fingerprint: of the data set of the checkpoint; None if it is unknown.
            id_spaces: of that data set; empty if they are unknown.

        Returns:
            Feature -> rows, ascending; features that are absent keep all rows. None: ids moved in
            an unknown way, so that tables must have equal numbers of rows.
        """
        if not self.evicted or self.continues(id_spaces):
            return {}
        is_previous = bool(id_spaces) and id_spaces[0] == self.evicted_from
        if fingerprint not in self.ancestors and not is_previous:
            return None
        kept = {}
        for name, file in self.evicted.items():
            try:
                kept[name] = np.load(file, mmap_mode="r")
            except (OSError, EOFError, ValueError) as error:
                raise ValueError(
                    f"{file}: expected the former ids of the values that stayed, got a file that "
                    f"cannot be read ({error}): encode the data set again"
                ) from None
        return kept


def id_space_of(files: Iterable[Path]) -> str:
    """Returns the identity of vocabularies: the SHA-256 of their files, in the given order."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()
