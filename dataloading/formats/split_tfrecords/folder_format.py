"""Layout of a data set of split TFRecords: folders, `format.json`, `length.json`.

    <split>/numerical/      format.json, data_0.tfrecords, data_1.tfrecords, ...
    <split>/label/          the same
    <split>/categorical_0/  the same, one folder per feature in the order of the channel
    <split>/length.json     prebatches (records) of each of these folders

The format is that of NVIDIA's DLRM_and_DCNv2, `dataloading/split_tfrecords_multihot_dataset.py`.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import Chunk, FeatureSpec

CHUNK_TYPE = "tfrecord"
FORMAT_FILE, LENGTH_FILE = "format.json", "length.json"  # which no feature spec names
_DTYPES = ("bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint8")


@dataclass(frozen=True)
class Format:
    """The content of a `format.json`."""

    format: str  # tfrecords
    dtype: str  # of the stored numbers, by NumPy's name
    multihot: bool  # samples are ragged tensors (ids and row splits), else [samples, num_features]
    feature_name: str  # of the bytes feature in each record
    num_features: int  # values per sample; ignored if multihot
    batches_per_file: int | None = None  # prebatches of each file but the last; not read
    prebatch: int | None = None  # samples of each prebatch but the last; not read. Ours only
    # Ids of every sample of a multi-hot feature, None where samples differ. Ours only: multi-hot
    # features of the original are read as ragged ones.
    hotness: int | None = None

    def write(self, folder: Path) -> None:
        (folder / FORMAT_FILE).write_text(json.dumps(asdict(self)) + "\n")


def read_format(folder: Path) -> Format:
    """Reads and checks the `format.json` of a folder; unknown keys are ignored."""
    path = folder / FORMAT_FILE
    content = _read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: found {content!r:.100}; expected a mapping")
    rules = {  # the last three are absent in files of the original
        "format": (lambda v: v == "tfrecords", "tfrecords"),
        "dtype": (lambda v: v in _DTYPES, ", ".join(_DTYPES)),
        "multihot": (lambda v: isinstance(v, bool), "true or false"),
        "feature_name": (lambda v: isinstance(v, str), "a string"),
        "num_features": (_is_count, "a whole number, 0 or more"),
        "batches_per_file": (_is_count_or_none, "a whole number, 1 or more"),
        "prebatch": (_is_count_or_none, "a whole number, 1 or more"),
        "hotness": (_is_count_or_none, "null or a whole number, 1 or more"),
    }
    stated = {key: content.get(key) for key in rules}
    for key, (holds, allowed) in rules.items():
        if not holds(stated[key]):
            value = f"{stated[key]!r:.100}" if key in content else "missing"
            raise ValueError(f"{path}: {key} is {value}; expected {allowed}")
    return Format(**stated)


def read_length(folder: Path) -> int | None:
    """Returns the prebatches of a split, from its `length.json`; None without that file."""
    path = folder / LENGTH_FILE
    if not path.exists():
        return None
    length = _read_json(path)
    if not _is_count(length):
        raise ValueError(f"{path}: found {length!r:.100}; expected a whole number, 0 or more")
    return length


def folders_of(spec: FeatureSpec) -> dict[str, tuple[str, ...]]:
    """Returns the features that each folder of a split stores; `label` may be absent."""
    folders = {"label": spec.channel_spec.get(fs.LABEL_CHANNEL, ())}
    folders["numerical"] = spec.channel(fs.NUMERICAL_CHANNEL)
    for index, feature in enumerate(spec.channel(fs.CATEGORICAL_CHANNEL)):
        folders[f"categorical_{index}"] = (feature,)
    return {folder: features for folder, features in folders.items() if features}


def stored_spec(spec: FeatureSpec) -> FeatureSpec:
    """Returns the spec, or that of the split TFRecords next to it if none of its files exist, as in
    data sets of the original."""
    chunks = [chunk for chunks in spec.source_spec.values() for chunk in chunks]
    if any((spec.base_directory / file).is_file() for c in chunks for file in c.files):
        return spec
    try:
        return spec_of_folders(spec)
    except ValueError:
        if chunks:
            return spec  # its own files are missing
        raise


def spec_of_folders(spec: FeatureSpec) -> FeatureSpec:
    """Returns the spec with a source_spec that names the split TFRecords next to it.

    A spec with `tfrecord` chunks stays as it is. Data sets of the original have the source_spec of
    the files that they were made of, or none: then the folders define what is stored.

    Raises:
        ValueError: the folders do not exist, or one lacks a file.
    """
    if any(chunk.type == CHUNK_TYPE for chunks in spec.source_spec.values() for chunk in chunks):
        return spec
    features_of = folders_of(spec)
    sources = {}
    base = spec.base_directory
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        if any((folder / name / FORMAT_FILE).is_file() for name in features_of):
            sources[folder.name] = tuple(
                Chunk(CHUNK_TYPE, features, _data_files(base, f"{folder.name}/{name}"))
                for name, features in features_of.items()
                if name != "label" or (folder / name).is_dir()
            )
    if not sources:
        raise ValueError(
            f"{spec.origin}: source_spec names no chunk of type {CHUNK_TYPE}, and no folder next "
            f"to it holds split TFRecords (a file such as train/label/{FORMAT_FILE}); make them "
            "with python -m dataloading.transcribe, or read split binaries with --dataset_type "
            "tf_raw"
        )
    return replace(spec, source_spec=sources)


def _data_files(base: Path, folder: str) -> tuple[str, ...]:
    """Returns `data_0.tfrecords`, `data_1.tfrecords`, ... of a folder, as a spec names them."""
    names = {path.name for path in (base / folder).glob("data_*.tfrecords")}
    files = [f"data_{number}.tfrecords" for number in range(max(1, len(names)))]
    for file in files:
        if file not in names:
            raise ValueError(
                f"{base / folder}: file {file} is not there; the files of a folder are numbered "
                "from 0 without a gap"
            )
    return tuple(f"{folder}/{file}" for file in files)


def _read_json(path: Path):
    try:
        return json.loads(path.read_text())
    # Also bytes that are not text, numbers too long for Python, and brackets too deep for it.
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected JSON that describes the TFRecord files next to it, got {error}"
        ) from None


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_count_or_none(value) -> bool:
    return value is None or (_is_count(value) and value > 0)
