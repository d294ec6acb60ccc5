"""The simplified feature spec of one CSV or Parquet file, inferred from all of its rows.

Texts are categorical. Whole numbers are categorical where they look like names: the column is
called `id`, `..._id` or `...Id`, or there are at most 1,000 different ones, each of which occurs
10 times or more on average. Other numbers are numerical. Columns without a value, and of types that
are neither text nor number, are left out.
"""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
from dataloading.table_input import values as table_values
from dataloading.table_input.files import Block, decoded_header
from dataloading.table_input.lines import line_blocks
from dataloading.table_input.values import BadValue
from dataloading.transcode.progress import progress_bar
from dataloading.transcode.raw_spec import AUTO, CSV, PARQUET, RawChunk

MOST_DIFFERENT = 1000  # different values that are counted
_WHOLE = r"^[+-]?\d{1,15}(\.0+)?$"
# Numbers that are codes: with leading zeros, or longer than float64 can hold exactly.
_CODE = r"^[+-]?(0\d|\d{16})"
_ROWS_PER_CATEGORY = 10
_ID_NAME = re.compile(r"(.*[_\-. ])?(id|Id|ID)|.*[a-z](Id|ID)")
_ENDINGS = {".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV, ".parquet": PARQUET}


@dataclass
class ColumnFacts:
    """Facts of a column, from the blocks seen so far."""

    rows: int = 0
    missing: int = 0
    is_text: bool = False
    is_list: bool = False
    is_whole: bool = True
    other_type: str = ""
    separators: set[int] = field(default_factory=set)
    different: set = field(default_factory=set)

    def merge(self, other: "ColumnFacts") -> None:
        """Takes in the facts of other blocks."""
        self.rows += other.rows
        self.missing += other.missing
        self.is_text |= other.is_text
        self.is_list |= other.is_list
        self.is_whole &= other.is_whole
        self.separators |= other.separators
        self.other_type = other.other_type or self.other_type
        self._check_lengths()
        if len(self.different) <= MOST_DIFFERENT:
            self.different |= other.different

    def add(self, column: pa.Array) -> None:
        """Takes in the values of a block."""
        self.rows += len(column)
        if table_values.is_list(column):
            self._add_lists(column)
            return
        values = table_values.flat(column, 1)
        if table_values.is_text(values):
            values = table_values.without_empty(values)
        elif not pa.types.is_null(values.type) and not table_values.is_number(values):
            self.other_type = str(values.type)
            return
        present = table_values.without_nan(values).drop_null()
        self.missing += len(values) - len(present)
        if not len(present):
            return
        if table_values.is_text(present):
            self._add_texts(present)
        elif pa.types.is_boolean(present.type):
            self.is_text = True
        else:
            self.is_whole &= table_values.are_whole(present)
        self._add_different(present)

    def _add_texts(self, present: pa.Array) -> None:
        counts = pc.min_max(pc.count_substring(present, table_values.SEPARATOR)).as_py()
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
        """Takes in lists; the values of other ones than of `table_values.texts` are left out."""
        self.is_text = self.is_list = True
        values = column.flatten()
        try:
            present = table_values.without_nan(table_values.decoded(values)).drop_null()
        except BadValue as bad:
            bad.index = pc.list_parent_indices(column)[bad.index].as_py()
            raise
        if table_values.is_text(present) or table_values.are_whole(present):
            self._add_different(present)
        else:
            self.other_type = f"lists of {values.type}"
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        self.separators |= {length - 1 for length in pc.unique(lengths).to_pylist()}
        self._check_lengths()

    def _check_lengths(self) -> None:
        if self.is_list and len(self.separators) > 1:
            self.other_type = "lists of different lengths"

    def _add_different(self, present: pa.Array) -> None:
        if len(self.different) <= MOST_DIFFERENT:
            self.different.update(pc.unique(present).to_pylist()[: MOST_DIFFERENT + 1])

    @property
    def hotness(self) -> int:
        """Values per row, where each row has the same number of them."""
        if len(self.separators) != 1 or self.missing:
            return 1
        return next(iter(self.separators)) + 1

    def is_categorical(self, name: str) -> bool:
        """Returns whether the values of a column of this name look like names."""
        if self.is_text:
            return True
        different = len(self.different)
        few = different <= MOST_DIFFERENT and self.rows >= _ROWS_PER_CATEGORY * different
        return self.is_whole and (few or _ID_NAME.fullmatch(name) is not None)

    def __str__(self) -> str:
        if self.other_type or not self.different:
            return self.other_type or "no value"
        count = len(self.different)
        different = f"more than {MOST_DIFFERENT:,}" if count > MOST_DIFFERENT else f"{count:,}"
        kind = "text" if self.is_text else "whole numbers" if self.is_whole else "numbers"
        share = f", {self.missing / self.rows:.2%} missing" if self.missing else ""
        return f"{kind}, {different} different{share}"


def _roles(
    flags: Mapping[str, str | None], columns: list[str], origin: str
) -> dict[str, tuple[str, ...]]:
    """Returns the columns of each role, which must exist and have one role."""
    roles, flag_of = {}, {}
    for flag, text in flags.items():
        is_list = flag in ("categorical", "numerical", "drop")
        roles[flag] = tuple(filter(None, text.split(",") if text and is_list else [text]))
        for name in roles[flag]:
            if name not in columns:
                raise ValueError(
                    f"--{flag} {name}: expected a column of {origin}, which has "
                    f"{rules.listing(columns)}" + rules.suggestion(name, columns)
                )
            if name in flag_of:
                raise ValueError(f"--{flag_of[name]} and --{flag} both name '{name}': give one")
            flag_of[name] = flag
    if len(roles["user"]) != len(roles["item"]) or (roles["user"] and roles["label"]):
        raise ValueError(
            "--user and --item describe interactions, rows of one user and one item without a "
            "label: give both, and no --label"
        )
    if not roles["user"] and not roles["label"]:
        raise ValueError(
            f"--label is missing: expected the column of {origin} to predict, one of "
            f"{rules.listing(columns)} (interactions: --user and --item)"
        )
    return roles


def _columns_of(path: Path) -> tuple[list[str], dict]:
    """Returns the columns of a file that have a name, and its chunk without features. The first
    line of a CSV file is divided at tabs if it has any, else at commas."""
    kind = next((kind for end, kind in _ENDINGS.items() if path.name.endswith(end)), None)
    if kind is None:
        raise ValueError(
            f"--input {path}: expected a folder with a feature spec, or a file that ends in "
            f"{', '.join(_ENDINGS)}"
        )
    chunk = {"type": kind, "files": [path.name]}
    if kind == PARQUET:
        try:
            names = pq.read_schema(path).names
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path}: is not a Parquet file that can be read: {error}") from None
    else:
        start = next(line_blocks(path, str(path)), b"")
        header = decoded_header(re.match(rb"[^\r\n]*", start)[0], str(path))
        delimiter = "\t" if "\t" in header else ","
        names = next(csv.reader([header], delimiter=delimiter), [])
        chunk = {"type": kind, "header": True, "files": [path.name]}
        if delimiter != ",":
            chunk["delimiter"] = delimiter
    names = [name for name in names if name]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path}: expected columns with different names, got {rules.listing(repeated)} twice "
            "or more: rename them"
        )
    if kind == CSV and not names:
        raise ValueError(f"{path}: expected a first line that names the columns, got an empty one")
    return names, chunk


def new_content(
    path: Path, flags: Mapping[str, str | None], time: str | None, scan: "Scan"
) -> tuple[dict, str]:
    """Returns the sections of the simplified feature spec of a new data set, and the spec for
    people.

    Args:
        flags: role -> its flag: label, categorical, numerical, drop, user and item.
        time: column of --split_by_time.

    Raises:
        ValueError: the file cannot be read, or the roles do not fit its columns.
    """
    names, chunk = _columns_of(path)
    roles = _roles(flags, names, str(path))
    if roles["user"]:
        channels = {USER_CHANNEL: list(roles["user"]), ITEM_CHANNEL: list(roles["item"])}
        features = {name: {"cardinality": AUTO} for (name,) in channels.values()}
        reasons = dict.fromkeys(features, "")
    else:
        read = [name for name in names if name not in (*roles["drop"], *roles["label"])]
        facts = scan(path, RawChunk(**{**chunk, "features": tuple(read)})) if read else {}
        if not all(column.rows for column in facts.values()):
            raise ValueError(f"{path}: has no rows")
        channels, features = _inferred(facts, roles, time)
        reasons = dict.fromkeys(roles["label"], "label") | dict.fromkeys(roles["drop"], "--drop")
        reasons |= {name: str(column) for name, column in facts.items()}
    if time in names:
        features.setdefault(time, {})
        reasons.setdefault(time, "divides the rows")
    content = {
        "feature_spec": features,
        "source_spec": {TRAIN: [{**chunk, "features": list(features)}]},
        "channel_spec": channels,
    }
    return content, _printed(content, reasons)


Scan = Callable[[Path, RawChunk], dict[str, ColumnFacts]]  # (file, columns) -> facts


def facts_of(blocks: Iterable[Block], names: Collection[str]) -> dict[str, ColumnFacts]:
    """Returns the facts of columns in blocks."""
    facts = {name: ColumnFacts() for name in names}
    with progress_bar("inferring columns", " rows") as bar:
        for block in blocks:
            for name, column in facts.items():
                try:
                    column.add(block.columns[name])
                except BadValue as bad:
                    bad.rule += f"; convert it, or leave the column out: --drop {name}"
                    raise block.value_error(f"column '{name}'", bad) from None
            bar.update(block.num_rows)
    return facts


def _inferred(
    facts: dict[str, ColumnFacts], roles: dict[str, tuple[str, ...]], time: str | None
) -> tuple[dict, dict]:
    labels, categorical, numerical = roles["label"], roles["categorical"], roles["numerical"]
    channels = {LABEL_CHANNEL: list(labels), NUMERICAL_CHANNEL: [], CATEGORICAL_CHANNEL: []}
    features: dict[str, dict] = {name: {} for name in labels}
    for name, column in facts.items():
        is_stated = name in categorical or name in numerical
        if not is_stated and (column.other_type or name == time or not column.different):
            continue
        if name in categorical or (not is_stated and column.is_categorical(name)):
            hotness = {"hotness": column.hotness} if column.hotness > 1 else {}
            features[name] = {"cardinality": AUTO, **hotness}
            channels[CATEGORICAL_CHANNEL].append(name)
        else:
            features[name] = {"dtype": "float32"}
            channels[NUMERICAL_CHANNEL].append(name)
    return channels, features


def _printed(content: dict, reasons: dict[str, str]) -> str:
    """Returns the spec as YAML, with what was seen of each column as comments."""

    def in_line(value) -> str:
        text = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, width=1 << 20)
        return text.strip()[1:-1]

    features = {
        f"  {in_line(name)}: {in_line(keys)}": reasons[name]
        for name, keys in content["feature_spec"].items()
    }
    width = max(map(len, features))
    (chunk,) = content["source_spec"][TRAIN]
    return "\n".join(
        [
            "# inferred from the whole file; --categorical, --numerical and --drop change it",
            "feature_spec:",
            *(f"{line:<{width}}  # {reason}".rstrip(" #") for line, reason in features.items()),
            "source_spec:",
            f"  {TRAIN}:",
            f"    - {in_line(chunk)}",
            "channel_spec:",
            *(f"  {name}: {in_line(names)}" for name, names in content["channel_spec"].items()),
            *(
                f"# left out: {name} ({reason})"
                for name, reason in reasons.items()
                if name not in content["feature_spec"]
            ),
        ]
    )


def known_content(path: Path, known: FeatureSpec, derived: set[str], split: str) -> dict:
    """Returns the sections of the simplified feature spec of more rows of an earlier data set.

    The columns of the file are found by name; the label and the derived features may be absent.
    """
    columns, chunk = _columns_of(path)
    channels = {
        channel: [name for name in names if name not in derived]
        for channel, names in known.channel_spec.items()
    }
    if not set(channels.get(LABEL_CHANNEL, ())) <= set(columns):
        channels[LABEL_CHANNEL] = []
    names = [name for names in channels.values() for name in names]
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{path}: expected the columns {rules.listing(names)} of {known.origin}; "
                f"'{name}' is missing, the file has {rules.listing(columns)}"
                + rules.suggestion(name, columns)
            )
    hotness = {name: known.hotness(name) for name in names}
    return {
        "feature_spec": {name: {"hotness": n} if n > 1 else {} for name, n in hotness.items()},
        "source_spec": {split: [{**chunk, "features": names}]},
        "channel_spec": channels,
    }
