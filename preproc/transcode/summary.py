"""The report of `transcode` on the data set that it made."""

from collections.abc import Mapping

from dataloading.interactions.stored import length_of_lists
from dataloading.spec import rules
from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import HashBuckets, IdEncoding, Label
from preproc.encoding.numbers import Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary
from preproc.fitting.transformation import Scale
from preproc.transcode.raw.spec import RawSpec
from runtime.readable import text_table

# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100


def summary(
    spec: RawSpec,
    encoder: Encoder,
    written: FeatureSpec,
    scales: Mapping[str, Scale],
    seen: Mapping[str, str],
) -> str:
    """Returns the report on a data set: lines on splits, a table of columns, notes.

    Args:
        scales: shapes of the numbers that were fitted.
        seen: of the columns of a table, what was seen of each, or why it is left out.
    """
    own = written.metadata[METADATA]
    lines = [
        f"{name}: {n:,} rows, {_rows(written, name, encoder)}" for name, n in own["rows"].items()
    ]
    channels = {name: channel for channel, names in written.channel_spec.items() for name in names}
    rows, notes = [], []
    for feature in encoder.features:
        values, _, reason = seen.get(feature.column, "").partition("; ")
        shares = [own["unknown_share"][split].get(feature.name) for split in own["rows"]]
        unknown = ", ".join(f"{share:.2%}" for share in shares if share is not None)
        stored = []
        if isinstance(feature, Label):
            values = " or ".join(feature.conditions)
        elif isinstance(feature, IdEncoding):
            stored.append(_describe_ids(own, feature))
            notes += _id_notes(own, feature)
        elif isinstance(feature, Number):
            stored += _describe_number(encoder, feature, scales.get(feature.name))
        channel = channels.get(feature.name, "-")
        stored += [reason] if reason else []
        rows.append([feature.name, channel, values, unknown, "; ".join(stored)])
    header = [
        "column",
        "channel",
        "values in train",
        f"unknown: {', '.join(own['rows'])}",
        "stored as",
    ]
    lines += ["", *text_table(header, rows)]
    left_out = [name for name in seen if name not in {f.column for f in encoder.features}]
    lines += [f"left out: {name} ({seen[name]})" for name in left_out]
    if spec.unused:
        lines.append(f"left out, in no channel: {rules.listing(spec.unused)}")
    lines += [""]
    if any(isinstance(feature, Vocabulary) for feature in encoder.features):
        lines.append("unknown: missing, rare and new values of a column, which share id 0")
    if seen:
        lines.append("--categorical, --numerical, --drop and --keep change how a column is read")
    for name, count in own.get("long_lists", {}).items():
        notes.append(
            f"{name}: {count:,} lists are longer than the longest of train; the first "
            f"{encoder[name].hotness} values of each are stored"
        )
    return "\n".join([*lines, *notes])


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


def _describe_number(encoder: Encoder, feature: Number, scale: Scale | None) -> list[str]:
    profile = encoder.profile.get(feature.column, ColumnProfile(0, 0))
    parts = []
    if feature.transformation == "standardize":
        parts.append(f"standardized, mean {feature.mean:g}, deviation {feature.deviation:g}")
    elif feature.transformation != "none":
        reason = f", as {scale}" if scale is not None and scale.is_chosen else ""
        parts.append(f"transformed by {feature.transformation}{reason}")
    if profile.missing and feature.fill is not None:
        marked = f", marked in {feature.indicator}" if feature.indicator else ""
        share = f"{profile.missing_share:.2%} of train"
        parts.append(f"{feature.fill:g} replaces missing values, {share}{marked}")
    return parts


def _describe_ids(own: dict, feature: IdEncoding) -> str:
    text = f"{feature.num_ids:,} ids"
    if isinstance(feature, HashBuckets):
        return f"{text}, hashed"
    if isinstance(feature, Vocabulary):
        for key, word in (("new_values", "new"), ("evicted", "evicted")):
            count = own.get(key, {}).get(feature.name, 0)
            text += f" ({count:,} {word})" if count else ""
        if feature.threshold > 1:
            text += f", seen {feature.threshold} times or more"
    return text


def _id_notes(own: dict, feature: IdEncoding) -> list[str]:
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
