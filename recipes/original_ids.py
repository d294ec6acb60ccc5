"""Original values of the ids of a data set, by its encoder."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataloading.spec.data_set_files import ENCODER_FOLDER
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.rules import listing
from preproc.encoding.arrow_columns import InvalidValue
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Identity
from preproc.encoding.vocabulary import Vocabulary

# Texts that are integers and nothing else: 007 and 7.0 stay texts.
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True)
class OriginalIds:
    """Original values of the ids of a feature; without a vocabulary, the ids are the values."""

    encoding: Vocabulary | Identity

    @property
    def first_id(self) -> int:
        """First id that stands for a value, 0 or 1."""
        return self.encoding.first_id if isinstance(self.encoding, Vocabulary) else 0

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids that stand for a value, ascending."""
        return np.arange(self.first_id, len(self), dtype=np.int64)

    @functools.cached_property
    def type(self) -> pa.DataType:
        """Int64 if all values are integers, else string."""
        if isinstance(self.encoding, Identity):
            return pa.int64()
        is_integer = pc.match_substring_regex(self.encoding.values, _INTEGER)
        return pa.int64() if pc.all(is_integer, min_count=0).as_py() else pa.string()

    def decode(self, ids: NDArray[Any]) -> pa.Array:
        """Returns the values of ids [n]; null for an id that stands for no value."""
        return self.encoding.decode(ids).cast(self.type)

    def encode(self, values: pa.Array, where: str) -> NDArray[np.int64]:
        """Returns the ids of values [n].

        Raises:
            ValueError: a value has no id; `where` names its file.
        """
        try:
            ids = self.encoding.encode(values)[self.encoding.name][:, 0].astype(np.int64)
            row = int(np.argmin(ids)) if len(ids) else 0
            if not len(ids) or ids[row] >= self.first_id:
                return ids
        except InvalidValue as bad:
            row = bad.index
        examples = self.decode(self.ids[:3]).to_pylist()
        raise ValueError(
            f"{where}: row {row + 1}: expected one of the {len(self.ids):,} values of "
            f"'{self.encoding.name}' in the data set, such as {listing(examples)}, got "
            f"{values[row].as_py()!r:.100}; leave it out, or train with it"
        )

    def __len__(self) -> int:
        return self.encoding.num_ids


def original_ids(spec: FeatureSpec, feature: str, num_ids: int) -> tuple[OriginalIds, str]:
    """Returns the values of a feature of `num_ids` ids, and a note if it has no vocabulary.

    Raises:
        ValueError: the encoder is damaged, or not that of the data set.
    """
    encoding = _vocabularies(spec, [feature]).get(feature)
    if encoding is None:
        plain = Identity(name=feature, column=feature, cardinality=num_ids)
        return OriginalIds(plain), (
            f"the data set has no vocabulary of '{feature}': the users or items in the file are "
            "ids of the data set"
        )
    if encoding.num_ids != num_ids:
        raise ValueError(
            f"{Path(spec.base_directory) / ENCODER_FOLDER}: expected {num_ids:,} ids of "
            f"'{feature}', as in {spec.origin}, got {encoding.num_ids:,}: take the encoder that "
            "belongs to the data set"
        )
    return OriginalIds(encoding), ""


def decoders(
    spec: FeatureSpec, names: Sequence[str], tables: Mapping[str, str] | None = None
) -> dict[str, Callable[[NDArray[Any]], pa.Array]]:
    """Returns, for features that have a vocabulary, what turns ids into values.

    Args:
        tables: feature of a history -> feature of the target item whose ids it has.

    Raises:
        ValueError: see `original_ids`.
    """
    table_of = {name: (tables or {}).get(name, name) for name in names}
    known = _vocabularies(spec, list(table_of.values()))
    return {
        name: original_ids(spec, table, spec.cardinality(table))[0].decode
        for name, table in table_of.items()
        if table in known
    }


def _vocabularies(spec: FeatureSpec, names: Sequence[str]) -> dict[str, Vocabulary]:
    folder = Path(spec.base_directory) / ENCODER_FOLDER
    if not folder.is_dir():
        if ENCODER_FOLDER in spec.metadata:
            raise ValueError(
                f"{spec.origin}: expected the data set's encoder, which has the original values "
                f"of ids, got no folder {folder}: restore it"
            )
        return {}
    features = Encoder.load(folder, names).features
    return {each.name: each for each in features if isinstance(each, Vocabulary)}
