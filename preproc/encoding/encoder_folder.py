"""Folder of an encoder.

encoder.json               version, spellings of missing values, features, digest
vocabulary/FEATURE.parquet value, count, and if they are kept last_seen, previous_id and "id of
                           FEATURE" for attributes; odd characters in the name are as in a URL
profile.json               source column -> statistics
"""

import functools
import hashlib
import json
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.encoding.arrow_columns import utf8
from preproc.encoding.encodings import FeatureEncoding, HashBuckets, Identity, Label
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

VERSION = 1
_FILE, _PROFILE, _VOCABULARIES = "encoder.json", "profile.json", "vocabulary"
_KINDS = {cls.kind: cls for cls in (Number, Bins, Vocabulary, HashBuckets, Identity, Label)}
_COLUMNS = {"values": "value", "counts": "count", "last_seen": "last_seen"}
_COLUMNS["previous_ids"] = "previous_id"
_ATTRIBUTE = "id of "


@dataclass(frozen=True)
class Content:
    """Content of a folder."""

    features: tuple[FeatureEncoding, ...]
    missing_values: tuple[str, ...]
    profile: dict[str, ColumnProfile]
    digest: str


@dataclass(frozen=True)
class _Column:
    """Values of a vocabulary, whose blocks can be read several times."""

    kind: pa.DataType
    num_values: int
    blocks: Callable[[], Iterable[pa.Array]]


def digest(features: Sequence[FeatureEncoding], missing_values: Sequence[str]) -> str:
    """Returns the SHA-256 of encodings and spellings of missing values."""
    columns = (
        [_Column(array.type, len(array), lambda array=array: [array]) for array in arrays.values()]
        for arrays in map(_arrays, features)
    )
    return _digest(features, missing_values, columns)


def _digest(
    features: Sequence[FeatureEncoding],
    missing_values: Sequence[str],
    columns: Iterable[Sequence[_Column]],
) -> str:
    settings = [encoding.to_json() for encoding in features]
    text = json.dumps([VERSION, list(missing_values), settings], sort_keys=True)
    result = hashlib.sha256(text.encode())
    for of_feature in columns:
        for column in of_feature:
            _update(result, column)
    return result.hexdigest()


def _arrays(encoding: FeatureEncoding) -> dict[str, pa.Array]:
    """Returns the arrays of an encoding, in a fixed order, under the names of their columns."""
    if not isinstance(encoding, Vocabulary):
        return {}
    arrays = {column: getattr(encoding, name) for name, column in _COLUMNS.items()}
    arrays |= {_ATTRIBUTE + name: array for name, array in encoding.attributes.items()}
    return {column: array for column, array in arrays.items() if array is not None}


def _update(result: Any, column: _Column) -> None:
    """Adds the values of a column to a hash; Arrow's bytes of equal values may differ."""
    result.update(f"{column.num_values} {column.kind};".encode())
    if pa.types.is_string(column.kind):
        end = np.zeros(1, "<i8")
        result.update(end)
        for block in column.blocks():
            offsets = utf8(block)[0].astype("<i8") + end
            result.update(offsets[1:].tobytes())
            end = offsets[-1:]
        for block in column.blocks():
            result.update(utf8(block)[1].tobytes())
        return
    for block in column.blocks():
        numbers = block.cast(pa.int32()) if pa.types.is_date(column.kind) else block
        numbers = pc.fill_null(numbers.cast(pa.int64()), -1)
        result.update(numbers.to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def write(
    path: Path,
    features: Sequence[FeatureEncoding],
    missing_values: Sequence[str],
    profile: Mapping[str, ColumnProfile],
) -> None:
    """Writes a new folder; the caller's staging makes it appear when it is complete."""
    path.mkdir(parents=True, exist_ok=True)
    for encoding in features:
        if arrays := _arrays(encoding):
            file = vocabulary_file(path, encoding.name)
            file.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table(arrays), file)
    complete(path, features, missing_values, profile)


def complete(
    path: Path,
    features: Sequence[FeatureEncoding],
    missing_values: Sequence[str],
    profile: Mapping[str, ColumnProfile],
) -> str:
    """Completes a folder that has the files of the vocabularies; returns its digest.

    The files are read in blocks, because they may be larger than the memory.

    Args:
        features: encodings; the values and counts of vocabularies are not read, the files are.
    """
    stored = [_stored_columns(path, encoding) for encoding in features]
    content_digest = _digest(features, missing_values, stored)
    settings = [
        encoding.to_json() | ({"num_values": columns[0].num_values} if columns else {})
        for encoding, columns in zip(features, stored, strict=True)
    ]
    content = {
        "version": VERSION,
        "digest": content_digest,
        "missing_values": list(missing_values),
        "features": settings,
    }
    _write_json(path / _FILE, content)
    _write_json(path / _PROFILE, {column: p.to_json() for column, p in profile.items()})
    return content_digest


def _stored_columns(path: Path, encoding: FeatureEncoding) -> list[_Column]:
    if not isinstance(encoding, Vocabulary):
        return []
    file = vocabulary_file(path, encoding.name)
    footer = pq.read_metadata(file)
    schema = footer.schema.to_arrow_schema()

    def blocks(name: str) -> Iterable[pa.Array]:
        with pq.ParquetFile(file) as content:
            for batch in content.iter_batches(columns=[name], use_threads=False):
                yield batch.column(0)

    names = [*_COLUMNS.values(), *(_ATTRIBUTE + name for name in encoding.attributes)]
    return [
        _Column(schema.field(name).type, footer.num_rows, functools.partial(blocks, name))
        for name in names
        if name in schema.names
    ]


def files(path: Path, vocabularies: Iterable[str]) -> list[Path]:
    """Returns the files in a folder of an encoder whose features have vocabularies."""
    own = (path / name for name in (_FILE, _PROFILE))
    return [*own, *(vocabulary_file(path, feature) for feature in vocabularies)]


def vocabulary_file(path: Path, feature: str) -> Path:
    """Returns the file of a feature's vocabulary in an encoder's folder."""
    return path / _VOCABULARIES / f"{urllib.parse.quote(feature, safe='')}.parquet"


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path, names: Collection[str] | None = None, *, has_values: bool = True) -> Content:
    """Returns the content of a folder.

    Args:
        names: features to read; None: all.
        has_values: False leaves the vocabularies without their values, which may be many.

    Raises:
        ValueError: a file is absent, damaged, or of another version.
    """
    if not (path / _FILE).is_file():
        raise ValueError(
            f"{path}: the data set has no encoder, as those of older versions and copies without "
            "this folder: copy it from the original data set, or prepare the raw rows again"
        )
    content = _read_json(path, _FILE)
    version = content.get("version")
    if version != VERSION:
        raise ValueError(
            f"{path / _FILE}: expected version {VERSION}, got {version!r}: prepare the raw rows "
            "again, or use the version of the toolkit that wrote it"
        )
    try:
        features = tuple(
            _encoding(path, dict(fields), has_values)
            for fields in content["features"]
            if names is None or fields["name"] in names
        )
        profile = {
            column: ColumnProfile.from_json(values)
            for column, values in _read_json(path, _PROFILE).items()
        }
        return Content(features, tuple(content["missing_values"]), profile, content["digest"])
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException, OSError) as error:
        raise damaged(path, error) from None


def read_digest(path: Path, expected: str | None = None) -> str:
    """Returns the digest of the encoder in a folder, without reading vocabularies.

    Args:
        expected: digest that it must have, of a data set or a model; None: any.

    Raises:
        ValueError: `encoder.json` is absent or damaged, or the encoder has another digest.
    """
    stored = _read_json(path, _FILE).get("digest")
    if not isinstance(stored, str):
        raise damaged(path, f"no digest in {_FILE}")
    if expected is not None and stored != expected:
        raise ValueError(
            f"{path}: expected the encoder with the digest {expected!s:.12}, got that of another "
            f"data set, {stored:.12}: copy the folder of the right data set, or prepare it again"
        )
    return stored


def _encoding(path: Path, fields: dict[str, Any], has_values: bool) -> FeatureEncoding:
    cls = _KINDS[fields["kind"]]
    if cls is Vocabulary:
        num_values = fields.pop("num_values")
        file = vocabulary_file(path, fields["name"])
        with pq.ParquetFile(file) as content:
            num_rows = content.metadata.num_rows
            if num_rows != num_values:
                raise ValueError(f"{file}: expected {num_values:,} rows, got {num_rows:,}")
            empty = content.schema_arrow.empty_table()
            table = content.read(use_threads=False) if has_values else empty
        arrays = {column: _array(table[column]) for column in table.column_names}
        fields |= {name: arrays[column] for name, column in _COLUMNS.items() if column in arrays}
        attributes = fields.get("attributes", ())
        fields["attributes"] = {name: arrays[_ATTRIBUTE + name] for name in attributes}
    return cls.from_json(fields)


def _array(chunked: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], chunked.type), *chunked.chunks])


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None
    if not isinstance(content, dict):
        raise damaged(path, f"{name} is not a JSON object")
    return content


def damaged(path: Path, reason: object) -> ValueError:
    """Returns the error of a folder that is not as it was written."""
    words = " ".join(str(reason).split())
    return ValueError(
        f"{path}: expected the complete folder of an encoder, got {words:.300}: copy the folder "
        "again, or prepare the data again"
    )
