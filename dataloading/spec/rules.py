"""The rules of the feature spec format, section by section. Pure functions, no TensorFlow.

Each function takes what YAML gave, returns it in normal form, or raises one `ValueError`:
`<file>: <section>: <name>: <received value>; expected <values>`.
"""

import datetime
import difflib
import math
import posixpath
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
# `dataloading.formats.open_chunk` has the readers.
CHUNK_TYPES = ("split_binary", "ragged_binary", "torch_tensor", "csv", "tfrecord")
SECTIONS = ("feature_spec", "source_spec", "channel_spec", "metadata")
FEATURE_KEYS = ("dtype", "cardinality", "hotness", "alpha", "dimensions")
# Names of channels in NVIDIA's NCF recipe, and ours.
CHANNEL_ALIASES = {"user_ch": "user", "item_ch": "item", "label_ch": "label"}
CHUNK_KEYS = ("type", "features", "files")
MAX_HOTNESS = 1 << 20  # more is a slip, and would ask for the memory
# PyTorch's short names; accepted after `torch.` only.
_TORCH_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}


# Feature name -> keys.
Features = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Chunk:
    """Features that are stored together."""

    type: str  # one of `CHUNK_TYPES`
    features: tuple[str, ...]  # in the order in which a sample stores them
    # relative to the folder of the YAML file, in the order of their samples; of `ragged_binary` the
    # ranges, then the values of each feature
    files: tuple[str, ...]


def suggestion(name: object, known: Iterable[object], question: str = "did you mean") -> str:
    """Returns `; did you mean 'x'?` where one of `known` is close to `name`, else nothing.

    Upper and lower case do not count. 'tag' is not close to 'target', nor 'business_name' to
    'BusinessTravel'.
    """
    spellings = {str(k).lower(): str(k) for k in known}
    close = difflib.get_close_matches(str(name).lower(), spellings, n=1, cutoff=0.75)
    return f"; {question} '{spellings[close[0]]}'?" if close else ""


def listing(names: Iterable[object]) -> str:
    """Returns the names in one line, the first ten of many."""
    texts = [str(name) for name in names]
    more = f", ... ({len(texts)} in all)" if len(texts) > 10 else ""
    return (", ".join(texts[:10]) + more) or "none"


def alternatives(name: object, known: Iterable[object]) -> str:
    """Returns the end of a message about an unknown name: the known ones, and a close one."""
    names = list(known)
    return f"; there are {listing(names)}" + suggestion(name, names)


def check_sections(raw: Any, origin: str) -> None:
    """Raises ValueError unless every section is known and all but `metadata` are there."""
    if not isinstance(raw, dict):
        raise ValueError(f"{origin}: found {raw!r:.100}; expected a mapping of {SECTIONS}")
    for name in raw:
        _check_known(name, SECTIONS, origin, "section")
    for name in SECTIONS[:-1]:
        if name not in raw:
            raise ValueError(
                f"{origin}: section {name} is missing; needed: {', '.join(SECTIONS[:-1])}"
            )


def features_section(raw: Any, origin: str) -> Features:
    """Returns `feature_spec`: name -> {dtype, cardinality, ...}, dtypes without `torch.`."""
    where = f"{origin}: feature_spec"
    _check_mapping(raw, where, "feature name: {dtype: ..., ...}")
    features: Features = {}
    for name, keys in raw.items():
        _check_name(name, where, "feature")
        features[name] = _feature(keys, f"{where}: feature '{name}'")
    return features


def _feature(raw: Any, where: str) -> dict[str, Any]:
    _check_mapping(raw, where, "{dtype: ..., ...}", may_be_empty=True)
    own = {key: value for key, value in raw.items() if key not in FEATURE_KEYS}
    for key in own:
        if hint := suggestion(key, FEATURE_KEYS):  # a slip, not a key of the user's own
            raise ValueError(
                f"{where}: unknown key {key!r}; expected {', '.join(FEATURE_KEYS)}{hint}"
            )
    if "dtype" not in raw:
        raise ValueError(f"{where}: dtype is missing; expected {', '.join(DTYPES)}")
    feature: dict[str, Any] = plain_value(own, where)
    feature["dtype"] = _dtype(raw["dtype"], where)
    if "cardinality" in raw:
        feature["cardinality"] = _positive_int(raw["cardinality"], where, "cardinality")
        _check_dtype_holds(feature["dtype"], feature["cardinality"], where)
    if "hotness" in raw:
        feature["hotness"] = _positive_int(raw["hotness"], where, "hotness")
    if "alpha" in raw:
        alpha = raw["alpha"]
        is_number = isinstance(alpha, int | float | np.number) and not isinstance(alpha, bool)
        if not is_number or not 0 <= alpha <= 1e6:
            raise ValueError(f"{where}: alpha is {alpha!r}; expected a number from 0 to 1e6")
        feature["alpha"] = float(alpha)
    if "dimensions" in raw:
        sizes = raw["dimensions"]
        if not isinstance(sizes, list | tuple):
            raise ValueError(f"{where}: dimensions is {sizes!r}; expected a list of positive ints")
        feature["dimensions"] = [_positive_int(n, where, "a size in dimensions") for n in sizes]
    product = math.prod(feature.get("dimensions", ()))
    hotness = feature.get("hotness", product)
    if "dimensions" in feature and hotness != product:
        raise ValueError(
            f"{where}: hotness {hotness} and dimensions {feature['dimensions']} disagree; hotness "
            "is the product of the dimensions, give one of them"
        )
    if hotness > MAX_HOTNESS:
        raise ValueError(f"{where}: {hotness} values per row; expected {MAX_HOTNESS} at most")
    return feature


def _dtype(raw: Any, where: str) -> str:
    """Returns the NumPy name of a dtype, e.g. `int8` for `torch.int8`."""
    name = raw
    if isinstance(raw, str) and raw.startswith("torch."):
        name = raw.removeprefix("torch.")
        name = _TORCH_NAMES.get(name, name)
    if name not in DTYPES:
        raise ValueError(
            f"{where}: unknown dtype {raw!r}; expected {', '.join(DTYPES)}, each also with the "
            "prefix 'torch.'" + suggestion(name, DTYPES)
        )
    return str(name)


def _check_dtype_holds(dtype: str, cardinality: int, where: str) -> None:
    largest = {"bool": 1} | {d: int(np.iinfo(d).max) for d in DTYPES if "int" in d}
    if dtype not in largest:
        raise ValueError(
            f"{where}: dtype {dtype} with a cardinality; a feature with a cardinality holds ids, "
            "its dtype must be an integer"
        )
    if cardinality - 1 > largest[dtype]:
        fitting = [d for d in largest if d != "bool" and cardinality - 1 <= largest[d]]
        raise ValueError(
            f"{where}: dtype {dtype} holds ids up to {largest[dtype]}, cardinality {cardinality} "
            f"needs ids up to {cardinality - 1}; expected {', '.join(fitting) or 'no dtype'}"
        )


def sources_section(
    raw: Any, features: Features, optional: tuple[str, ...], origin: str
) -> dict[str, tuple[Chunk, ...]]:
    """Returns `source_spec`: split name -> chunks; each feature in one chunk of each split.

    A split may leave out the features `optional`: labels, without which samples can be predicted,
    but not trained or evaluated on, and those that the loader draws.
    There may be no split at all: folders of split TFRecords define what they store.
    """
    where = f"{origin}: source_spec"
    if raw is None or raw == {}:
        return {}
    _check_mapping(raw, where, "split name: [chunk, ...]")
    sources = {}
    for split, chunks in raw.items():
        _check_name(split, where, "split")
        here = f"{where}: split '{split}'"
        _check_list(chunks, here, "chunks")
        sources[split] = tuple(
            _chunk(chunk, features, f"{here}: chunk {index}") for index, chunk in enumerate(chunks)
        )
        _check_each_once(sources[split], [name for name in features if name not in optional], here)
    return sources


def _chunk(raw: Any, features: Features, where: str) -> Chunk:
    if isinstance(raw, Chunk):
        raw = asdict(raw)
    _check_mapping(raw, where, "{type: ..., features: [...], files: [...]}", may_be_empty=True)
    for key in raw:
        _check_known(key, CHUNK_KEYS, where, "key")
    for key in CHUNK_KEYS:
        if key not in raw:
            raise ValueError(f"{where}: {key} is missing; needed: {', '.join(CHUNK_KEYS)}")
    kind, names, files = (raw[key] for key in CHUNK_KEYS)
    _check_known(kind, CHUNK_TYPES, where, "type")
    _check_list(names, where, "features")
    _check_list(files, where, "files")
    for name in names:
        _check_known_feature(name, features, where)
        dtype, first = features[name]["dtype"], features[names[0]]["dtype"]
        if kind == "split_binary" and dtype != first:
            raise ValueError(
                f"{where}: feature '{name}' is {dtype} and feature '{names[0]}' is {first}; a "
                "split_binary chunk has one dtype, use one chunk per dtype"
            )
    if kind == "ragged_binary" and len(files) != 1 + len(names):
        raise ValueError(
            f"{where}: {len(files)} files of {len(names)} features; expected that of the ranges, "
            "then one of the values of each feature"
        )
    for file in files:
        _check_file(file, where)
    return Chunk(kind, tuple(names), tuple(files))


def _check_file(file: Any, where: str) -> None:
    if not isinstance(file, str) or not file.strip() or "\0" in file:
        raise ValueError(f"{where}: file {file!r}; expected a path relative to the YAML file")
    if posixpath.isabs(file):
        raise ValueError(
            f"{where}: file '{file}' is an absolute path; expected paths relative to the YAML "
            "file, inside its folder"
        )
    if posixpath.normpath(file).split("/")[0] == "..":
        raise ValueError(
            f"{where}: file '{file}' leaves the data set's folder; expected paths inside the "
            "folder of the YAML file (a symbolic link inside it may point elsewhere)"
        )


def _check_each_once(chunks: tuple[Chunk, ...], needed: Iterable[str], where: str) -> None:
    """Raises ValueError if a feature or a file is there twice, or a needed feature is missing."""
    chunk_of: dict[tuple[str, str], int] = {}
    for index, chunk in enumerate(chunks):
        names = [("feature", name, "exactly one chunk of a split") for name in chunk.features]
        files = map(posixpath.normpath, chunk.files)
        for kind, name, rule in [*names, *(("file", f, "a file once per split") for f in files)]:
            if (kind, name) in chunk_of:
                raise ValueError(
                    f"{where}: {kind} '{name}' is in chunk {chunk_of[kind, name]} and again in "
                    f"chunk {index}; expected {rule}"
                )
            chunk_of[kind, name] = index
    for name in needed:
        if ("feature", name) not in chunk_of:
            raise ValueError(
                f"{where}: feature '{name}' is in no chunk; expected exactly one chunk of a "
                "split (remove it from feature_spec if it is not stored)"
            )


def channels_section(raw: Any, features: Features, origin: str) -> dict[str, tuple[str, ...]]:
    """Returns `channel_spec`: channel -> feature names, each once; a channel may be empty.

    Channels of NVIDIA's NCF recipe get our names.
    """
    where = f"{origin}: channel_spec"
    _check_mapping(raw, where, "channel name: [feature, ...]")
    for alias, channel in CHANNEL_ALIASES.items():
        if alias in raw and channel in raw:
            raise ValueError(f"{where}: '{alias}' and '{channel}' are one channel; remove one")
    for channel, names in raw.items():
        _check_name(channel, where, "channel")
        here = f"{where}: channel '{channel}'"
        _check_list(names, here, "features", may_be_empty=True)
        for index, name in enumerate(names):
            _check_known_feature(name, features, here)
            if name in names[:index]:
                raise ValueError(f"{here}: feature '{name}' is there twice; expected once")
    return {CHANNEL_ALIASES.get(channel, channel): tuple(names) for channel, names in raw.items()}


def plain_value(value: Any, where: str) -> Any:
    """Returns a copy of what YAML can write; NumPy scalars and tuples become plain values."""
    if isinstance(value, dict):
        return {plain_value(key, where): plain_value(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, where) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | datetime.date):
        return value
    raise ValueError(
        f"{where}: {value!r:.100} is a {type(value).__name__}; expected numbers, strings, "
        "lists and mappings"
    )


def _check_known(name: object, known: Collection[str], where: str, kind: str) -> None:
    if name not in known:
        raise ValueError(
            f"{where}: unknown {kind} {name!r}; expected {', '.join(known)}"
            + suggestion(name, known)
        )


def _check_known_feature(name: object, features: Features, where: str) -> None:
    if not isinstance(name, str) or name not in features:
        raise ValueError(
            f"{where}: unknown feature {name!r}; expected the names in feature_spec, "
            f"{listing(features)}" + suggestion(name, features)
        )


def _check_mapping(raw: Any, where: str, form: str, may_be_empty: bool = False) -> None:
    if not isinstance(raw, dict) or not (raw or may_be_empty):
        raise ValueError(f"{where}: {_describe_value(raw)}; expected a mapping of {form}")


def _check_list(raw: Any, where: str, what: str, may_be_empty: bool = False) -> None:
    if not isinstance(raw, list | tuple) or not (raw or may_be_empty):
        raise ValueError(f"{where}: {what}: {_describe_value(raw)}; expected a list")


def _describe_value(raw: Any) -> str:
    if raw is None or raw in ({}, [], ()):
        return "nothing there"
    return f"found {raw!r:.100} ({type(raw).__name__})"


def _check_name(name: object, where: str, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"{where}: {what} name {name!r} is a {type(name).__name__}; expected a string (YAML "
            "reads words such as yes, no, on and numbers otherwise: quote them)"
        )


def _positive_int(raw: Any, where: str, what: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | np.integer) or raw < 1:
        raise ValueError(f"{where}: {what} is {raw!r}; expected a positive whole number")
    return int(raw)
