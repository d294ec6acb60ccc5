"""Data sets whose vocabularies grew from those of earlier ones (`transcode --grow`).

Values keep their ids, and new ones follow. If values were evicted, the ids of the others moved up;
the column `previous_id` of the vocabulary has the former ids of those that stayed, ascending.
"""

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA, VOCABULARY_FOLDER
from dataloading.spec.feature_spec import FeatureSpec


@dataclass(frozen=True)
class Growth:
    """Growth of a data set from earlier ones.

    Attributes:
        ancestors: fingerprints of the data sets whose ids it continues, the latest first; with
            evicted values only the latest.
        evicted: features of which values were evicted -> file of the vocabulary.
        id_spaces: identity of the vocabularies, then those of the vocabularies whose ids they
            continue, the latest first; of data sets that `preproc.transcode` did not write, that of
            the encoder; empty if it is unknown, as in data sets without vocabulary.
        evicted_from: identity of the vocabularies that the values were evicted from.
        is_table: whether `preproc.transcode` wrote the data set, which can encode later rows, too.
    """

    ancestors: tuple[str, ...] = ()
    evicted: dict[str, Path] = field(default_factory=dict)
    id_spaces: tuple[str, ...] = ()
    evicted_from: str | None = None
    is_table: bool = False

    @classmethod
    def from_spec(cls, spec: FeatureSpec | None) -> "Growth":
        """Returns the growth that the metadata of a data set describe."""
        if spec is None:
            return cls()
        own = spec.metadata.get(METADATA)
        if not isinstance(own, dict):  # of another preparation, whose ids never grow
            encoder = spec.metadata.get(ENCODER_FOLDER)
            return cls(id_spaces=(encoder,) if isinstance(encoder, str) else ())
        names = own.get("evicted", ())
        folder = spec.base_directory / ENCODER_FOLDER / VOCABULARY_FOLDER
        # As `preproc.encoding.encoder_folder` names them.
        evicted = {name: folder / f"{urllib.parse.quote(name, safe='')}.parquet" for name in names}
        id_spaces = tuple(own.get("id_spaces", ()))
        ancestors, evicted_from = tuple(own.get("grown_from", ())), own.get("evicted_from")
        return cls(ancestors, evicted, id_spaces, evicted_from, is_table=True)

    def continues(self, id_spaces: Sequence[str]) -> bool:
        """Returns whether the ids of a checkpoint with these `id_spaces` keep their meaning."""
        return bool(id_spaces) and id_spaces[0] in self.id_spaces

    def check_ids(
        self, id_spaces: Sequence[str], where: str, trained_on: str | None, data: Path
    ) -> None:
        """Raises ValueError if the rows of a checkpoint belong to other values.

        Args:
            id_spaces: those of the data set of the checkpoint; empty if they are unknown.
            where: name of the checkpoint, for the message.
            trained_on: folder of its data set, for the message; None if it is unknown.
            data: folder of the data set.
        """
        if not id_spaces or not self.id_spaces or self.continues(id_spaces):
            return
        if self.id_spaces[0] in id_spaces or self.evicted_from == id_spaces[0]:
            return
        known = trained_on or "DIR"
        others = remedy = ""
        if self.is_table:
            others = (
                f", or one that `preproc.transcode --vocabulary {known}` encoded or (with --grow) "
                "one that continues its ids"
            )
            remedy = (
                ". Where values were evicted, only the next data set continues the ids: train on "
                "each in turn"
            )
        raise ValueError(
            f"{where}: expected the data set of its training, {known}{others}, got {data}, whose "
            f"ids are other values: pass another --dataset_path or checkpoint{remedy}"
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
            previous = pq.read_table(file, columns=["previous_id"])["previous_id"].drop_null()
            # Id 0, of missing and unknown values, stays.
            kept[name] = np.concatenate([[0], previous.to_numpy()])
        return kept
