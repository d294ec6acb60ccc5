"""The report of `transcode` on the data set that it made."""

from collections.abc import Iterator, Mapping

from dataloading.interactions.stored import length_of_lists
from dataloading.spec import rules
from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA
from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, HashBuckets, IdEncoding, Label
from preproc.encoding.numbers import Number
from preproc.encoding.vocabulary import Vocabulary
from preproc.transcode.raw.spec import RawSpec
from runtime.readable import text_table

# Words of the table for the transformations of numbers.
_TERMS = {"none": "as it is", "standardize": "standardized"}
# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100


def summary(
    spec: RawSpec,
    encoder: Encoder,
    written: FeatureSpec,
    seen: Mapping[str, str],
) -> str:
    """Returns the report on a data set: lines on splits, a table of columns, notes.

    Args:
        seen: of the columns of a table, what was seen of each, or why it is left out.
    """
    own = written.metadata[METADATA]
    lines = [
        f"{name}: {n:,} rows, {_rows(written, name, encoder)}" for name, n in own["rows"].items()
    ]
    channels = {name: channel for channel, names in written.channel_spec.items() for name in names}
    rows = [row for feature in encoder.features for row in _cells_of(feature, own, encoder, seen)]
    cells = [[name, channels.get(name, "-"), *texts] for name, *texts in rows]
    notes = [note for f in encoder.features if isinstance(f, IdEncoding) for note in _notes(own, f)]
    header = ["column", "channel", "values in train", "unknown", "stored as"]
    lines += ["", *text_table(header, cells)]
    left_out = [name for name in seen if name not in {f.column for f in encoder.features}]
    lines += [f"left out: {name} ({seen[name]})" for name in left_out]
    if unused := [name for name in spec.unused if name not in seen]:
        lines.append(f"left out, in no channel: {rules.listing(unused)}")
    lines += [""]
    if thresholds := [f.threshold for f in encoder.features if isinstance(f, Vocabulary)]:
        splits = ", ".join(own["rows"])
        text = f"unknown: missing, rare and new values (id 0) of {splits}; of numbers, missing ones"
        lines.append(text)
    if max(thresholds, default=0) > 1:
        lines.append("(n+): ids of the values that train has n times or more")
    if seen:
        lines.append("--categorical, --numerical, --drop and --keep change how a column is read")
        lines.append(
            f"details: {ENCODER_FOLDER}/encoder.json, and the metadata of the feature spec"
        )
    for name, count in own.get("long_lists", {}).items():
        notes.append(
            f"{name}: {count:,} lists are longer than the longest of train; the first "
            f"{encoder[name].hotness} values of each are stored"
        )
    return "\n".join([*lines, *notes])


def _cells_of(
    feature: FeatureEncoding, own: Mapping, encoder: Encoder, seen: Mapping[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yields name, values, unknown ones and form of a feature, and of its indicator."""
    values, _, reason = seen.get(feature.column, "").partition("; ")
    shares = [own["unknown_share"][split].get(feature.name) for split in own["rows"]]
    unknown, stored = ", ".join(f"{share:.2%}" for share in shares if share is not None), ""
    if isinstance(feature, Label):
        values = " or ".join(feature.conditions)
    elif isinstance(feature, IdEncoding):
        stored = _describe_ids(own, feature)
    elif isinstance(feature, Number):
        stored = _TERMS.get(feature.transformation, feature.transformation)
        profile = encoder.profile.get(feature.column)
        unknown = f"{profile.missing_share:.2%}" if profile and profile.missing else ""
    stored += f", {reason.partition(':')[0]}" if reason else ""
    yield feature.name, values, unknown, stored
    if isinstance(feature, Number) and feature.indicator:
        yield feature.indicator, f"1 where {feature.name} is missing", "", "0 or 1"


def _rows(written: FeatureSpec, split: str, encoder: Encoder) -> str:
    own = written.metadata[METADATA]
    if "click_rate" in own:
        rate = own["click_rate"].get(split)
        if rate is None:
            return "no label"
        negative, positive = next(f for f in encoder.features if isinstance(f, Label)).conditions
        return f"share of {positive} {rate:.4f}, of {negative} {1 - rate:.4f}"
    length = length_of_lists(written, split)
    if length is None:
        return "each an interaction"
    return f"{own['rows'][split] // length:,} candidate lists of {length:,}"


def _describe_ids(own: Mapping, feature: IdEncoding) -> str:
    text = f"{feature.num_ids:,} ids"
    if isinstance(feature, HashBuckets):
        return f"{text}, hashed"
    if isinstance(feature, Vocabulary):
        for key, word in (("new_values", "new"), ("evicted", "evicted")):
            count = own.get(key, {}).get(feature.name, 0)
            text += f", {count:,} {word}" if count else ""
        if feature.threshold > 1:
            text += f" ({feature.threshold}+)"
    return text


def _notes(own: Mapping, feature: IdEncoding) -> list[str]:
    name, cardinality = feature.name, feature.num_ids
    if isinstance(feature, Vocabulary):
        note = f"note: '{name}' has no value that is frequent enough: leave it out"
        return [] if cardinality > 1 else [note]
    few = cardinality > _SPARSE_FACTOR * max(own["rows"].values())
    if isinstance(feature, HashBuckets) or cardinality <= _SPARSE_CARDINALITY or not few:
        return []
    return [
        f"note: '{name}' has few rows for its largest id, {cardinality - 1:,}; its table has a row "
        "for each id up to that: --categorify makes it small"
    ]
