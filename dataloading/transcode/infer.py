"""The simplified feature spec of one CSV or Parquet file, inferred from all of its rows.

Texts are categorical. Whole numbers are categorical where they look like names: the column is
called `id`, `..._id` or `...Id`, or there are at most 1,000 different ones, each of which occurs
10 times or more on average. Other numbers are numerical. Columns without a value, and of types that
are neither text nor number, are left out.
"""

import csv
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from dataloading.spec import rules
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TRAIN,
    USER_CHANNEL,
    FeatureSpec,
)
from dataloading.table_input import values as transcode_values
from dataloading.table_input.files import mapping_blocks
from dataloading.table_input.lines import line_blocks
from dataloading.table_input.values import SEPARATOR
from dataloading.transcode.progress import progress_bar
from dataloading.transcode.raw_spec import AUTO, CSV, PARQUET, RawChunk, RawSpec

MOST_DIFFERENT = 1000  # different values that are counted
_WHOLE = r"^[+-]?\d{1,15}(\.0+)?$"
# Numbers that are codes: with leading zeros, or longer than float64 can hold exactly.
_CODE = r"^[+-]?(0\d|\d{16})"


@dataclass
class ColumnFacts:
    """Facts of a column, from the blocks seen so far."""

    rows: int = 0
    missing: int = 0
    is_text: bool = False
    is_number: bool = True
    is_whole: bool = True
    other_type: str = ""
    separators: set[int] = field(default_factory=set)
    different: set = field(default_factory=set)

    def add(self, column: pa.Array) -> None:
        """Takes in the values of a block."""
        self.rows += len(column)
        if any(kind(column.type) for kind in (pa.types.is_list, pa.types.is_fixed_size_list)):
            self._add_lists(column)
            return
        values = transcode_values.flat(column, 1)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = transcode_values.without_empty(values)
        elif pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        elif not pa.types.is_null(values.type) and not transcode_values.is_number(values):
            self.other_type = str(values.type)
            return
        present = values.drop_null()
        self.missing += len(values) - len(present)
        if not len(present):
            return
        if pa.types.is_string(present.type) or pa.types.is_large_string(present.type):
            self._add_texts(present)
        elif pa.types.is_boolean(present.type):
            self.is_text = True
        elif not pa.types.is_integer(present.type):
            numbers = present.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self.is_whole &= bool((numbers == np.floor(numbers)).all())
        self._note_different(present)

    def _add_texts(self, present: pa.Array) -> None:
        counts = pc.min_max(pc.count_substring(present, SEPARATOR)).as_py()
        self.separators |= set(counts.values())
        if self.is_text:
            return
        self.is_text = pc.any(pc.match_substring_regex(present, _CODE)).as_py()
        self.is_whole &= pc.all(pc.match_substring_regex(present, _WHOLE)).as_py()
        try:
            present.cast(pa.float64())
        except pa.ArrowInvalid:
            self.is_text = True

    def _add_lists(self, column: pa.Array) -> None:
        self.is_text = True
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        self.separators |= {length - 1 for length in pc.unique(lengths).to_pylist()}
        if len(self.separators) > 1:
            self.other_type = "lists of different lengths"
        self._note_different(column.flatten().drop_null())

    def _note_different(self, present: pa.Array) -> None:
        if len(self.different) <= MOST_DIFFERENT:
            self.different.update(pc.unique(present).to_pylist()[: MOST_DIFFERENT + 1])

    @property
    def hotness(self) -> int:
        """Values per row, where each row has the same number of them."""
        if len(self.separators) != 1 or self.missing:
            return 1
        return next(iter(self.separators)) + 1

    def described(self) -> str:
        """The facts, for people."""
        if not self.different:
            return "no value"
        count = len(self.different)
        different = f"more than {MOST_DIFFERENT:,}" if count > MOST_DIFFERENT else f"{count:,}"
        kind = "text" if self.is_text else "whole numbers" if self.is_whole else "numbers"
        share = f", {self.missing / self.rows:.2%} missing" if self.missing else ""
        return f"{kind}, {different} different{share}"


_ROWS_PER_CATEGORY = 10
_ID_NAME = re.compile(r"(.*[_\-. ])?(id|Id|ID)|.*[a-z](Id|ID)")
_ENDINGS = {".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV, ".parquet": PARQUET}


@dataclass(frozen=True)
class Roles:
    """Roles of columns that the user states; an empty name or tuple: none.

    Attributes:
        label, user, item, time: a column each.
        categorical, numerical, drop: columns.
    """

    label: str = ""
    categorical: tuple[str, ...] = ()
    numerical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    user: str = ""
    item: str = ""
    time: str = ""

    def check(self, columns: list[str], origin: str) -> None:
        """Raises ValueError where a column does not exist or has two roles."""
        roles: dict[str, str] = {}
        for flag in ("label", "categorical", "numerical", "drop", "user", "item"):
            names = getattr(self, flag)
            for name in (names,) if isinstance(names, str) else names:
                if not name:
                    continue
                if name not in columns:
                    raise ValueError(
                        f"--{flag} {name}: expected a column of {origin}, which has "
                        f"{rules.listing(columns)}" + rules.suggestion(name, columns)
                    )
                if name in roles:
                    raise ValueError(f"--{roles[name]} and --{flag} both name '{name}': give one")
                roles[name] = flag
        if bool(self.user) != bool(self.item) or (self.user and self.label):
            raise ValueError(
                "--user and --item describe interactions, rows of one user and one item without a "
                "label: give both, and no --label"
            )
        if not self.user and not self.label:
            raise ValueError(
                f"--label is missing: expected the column of {origin} to predict, one of "
                f"{rules.listing(columns)} (interactions: --user and --item)"
            )


def file_type(path: Path) -> str:
    """Returns `csv` or `parquet`, from the name of a file."""
    for ending, kind in _ENDINGS.items():
        if path.name.endswith(ending):
            return kind
    raise ValueError(
        f"--input {path}: expected a folder with a feature spec, or a file that ends in "
        f"{', '.join(_ENDINGS)}"
    )


def columns_of(path: Path) -> tuple[list[str], dict]:
    """Returns (the columns of a file, the keys of its chunk in a feature spec but for features).

    Columns of a CSV file are those of its first line, which is divided at tabs if it has any, else
    at commas. A column without a name is left out.
    """
    if file_type(path) == PARQUET:
        try:
            with pq.ParquetFile(path) as file:
                names = file.schema_arrow.names
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path}: is not a Parquet file that can be read: {error}") from None
        return _named(names, path), {"type": PARQUET, "files": [path.name]}
    start = next(line_blocks(path, str(path)), b"")
    header = re.match(rb"[^\r\n]*", start)[0].decode("utf-8", "replace")
    delimiter = "\t" if "\t" in header else ","
    names = _named(next(csv.reader([header], delimiter=delimiter), []), path)
    if not names:
        raise ValueError(f"{path}: expected a first line that names the columns, got an empty one")
    chunk = {"type": CSV, "header": True, "files": [path.name]}
    return names, chunk | ({"delimiter": delimiter} if delimiter != "," else {})


def _named(names: list[str], path: Path) -> list[str]:
    """The columns that have a name, each of which must be another one."""
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{path}: expected columns with different names, got {rules.listing(twice)} twice "
            "or more: rename them"
        )
    return [name for name in names if name]


def new_content(path: Path, roles: Roles, chunk_size: int) -> tuple[dict, str]:
    """Returns (sections of the simplified feature spec of a new data set, the spec for people).

    Args:
        path: the file.
        roles: what is known of its columns.
        chunk_size: the most rows to read at a time.

    Raises:
        ValueError: the file cannot be read, or the roles do not fit its columns.
    """
    names, chunk = columns_of(path)
    roles.check(names, str(path))
    if roles.user:
        channels = {USER_CHANNEL: [roles.user], ITEM_CHANNEL: [roles.item]}
        features = {name: {"cardinality": AUTO} for name in (roles.user, roles.item)}
        reasons = dict.fromkeys(features, "")
    else:
        channels, features, reasons = _inferred(path, names, chunk, roles, chunk_size)
    if roles.time and roles.time in names:
        features.setdefault(roles.time, {})
        reasons.setdefault(roles.time, "divides the rows")
    chunk = {**chunk, "features": list(features)}
    content = {
        "feature_spec": features,
        "source_spec": {TRAIN: [chunk]},
        "channel_spec": channels,
    }
    left_out = {name: reason for name, reason in reasons.items() if name not in features}
    return content, _printed(content, reasons, left_out)


def _inferred(path: Path, names: list[str], chunk: dict, roles: Roles, chunk_size: int):
    """(channels, features, what was seen of each column)."""
    read = [name for name in names if name not in (*roles.drop, roles.label)]
    facts = _scan(path, read, chunk, chunk_size)
    channels = {LABEL_CHANNEL: [roles.label], NUMERICAL_CHANNEL: [], CATEGORICAL_CHANNEL: []}
    features: dict[str, dict] = {roles.label: {}}
    reasons = {roles.label: "label", **dict.fromkeys(roles.drop, "--drop")}
    for name, column in facts.items():
        reasons[name] = column.other_type or column.described()
        if name in roles.numerical:
            channel = NUMERICAL_CHANNEL
        elif name in roles.categorical:
            channel = CATEGORICAL_CHANNEL
        elif column.other_type or name == roles.time or not column.different:
            continue
        else:
            channel = _channel(name, column)
        channels[channel].append(name)
        if channel == NUMERICAL_CHANNEL:
            features[name] = {"dtype": "float32"}
        else:
            hotness = {"hotness": column.hotness} if column.hotness > 1 else {}
            features[name] = {"cardinality": AUTO, **hotness}
    return channels, features, reasons


def _channel(name: str, column: ColumnFacts) -> str:
    if column.is_text:
        return CATEGORICAL_CHANNEL
    different = len(column.different)
    few = different <= MOST_DIFFERENT and column.rows >= _ROWS_PER_CATEGORY * different
    if column.is_whole and (few or _ID_NAME.fullmatch(name)):
        return CATEGORICAL_CHANNEL
    return NUMERICAL_CHANNEL


def _scan(path: Path, names: list[str], chunk: dict, chunk_size: int) -> dict[str, ColumnFacts]:
    raw = RawSpec(
        features={},
        unused=tuple(names),
        sources={TRAIN: (RawChunk(**{**chunk, "features": tuple(names)}),)},
        channels={},
        metadata={},
        base_directory=path.parent,
        origin=str(path),
    )
    facts = {name: ColumnFacts() for name in names}
    with progress_bar("inferring columns", " rows") as advance:
        for (block,) in mapping_blocks(raw, TRAIN, chunk_size) if names else ():
            for name, column in facts.items():
                column.add(block.columns[name])
            advance(block.num_rows)
    return facts


def _printed(content: dict, reasons: dict[str, str], left_out: dict[str, str]) -> str:
    """The spec as YAML, with what was seen of each column as comments."""

    def in_line(value) -> str:
        text = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=1 << 20)
        return text.strip()[1:-1]

    features = {
        f"  {in_line(name)}: {in_line(keys)}": reasons[name]
        for name, keys in content["feature_spec"].items()
    }
    width = max(map(len, features))
    lines = ["# inferred from the whole file; --categorical, --numerical and --drop change it"]
    lines += ["feature_spec:"]
    lines += [f"{line:<{width}}  # {reason}".rstrip(" #") for line, reason in features.items()]
    lines += ["source_spec:"]
    for mapping, chunks in content["source_spec"].items():
        lines += [f"  {mapping}:", *(f"    - {in_line(chunk)}" for chunk in chunks)]
    lines += ["channel_spec:"]
    lines += [f"  {name}: {in_line(names)}" for name, names in content["channel_spec"].items()]
    lines += [f"# left out: {name} ({reason})" for name, reason in left_out.items()]
    return "\n".join(lines)


def known_content(path: Path, known: FeatureSpec, derived: set[str], mapping: str) -> dict:
    """Returns the sections of the simplified feature spec of more rows of an earlier data set.

    Args:
        path: the file; its columns are found by name, the label may be absent.
        known: the earlier data set.
        derived: its features that raw data does not have.
        mapping: what the rows are called.
    """
    columns, chunk = columns_of(path)
    channels = {
        channel: [name for name in names if name not in derived]
        for channel, names in known.channel_spec.items()
    }
    labels = channels.get(LABEL_CHANNEL, [])
    if not set(labels) <= set(columns):
        channels[LABEL_CHANNEL] = []
    names = [name for names in channels.values() for name in names]
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{path}: expected the columns {rules.listing(names)} of {known.origin}; "
                f"'{name}' is missing, the file has {rules.listing(columns)}"
                + rules.suggestion(name, columns)
            )
    features = {}
    for name in names:
        hotness = known.hotness(name)
        features[name] = {"hotness": hotness} if hotness > 1 else {}
    return {
        "feature_spec": features,
        "source_spec": {mapping: [{**chunk, "features": names}]},
        "channel_spec": channels,
    }
