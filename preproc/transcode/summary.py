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

# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100


def summary(
    spec: RawSpec, encoder: Encoder, written: FeatureSpec, scales: Mapping[str, Scale]
) -> str:
    """Returns the report on a data set.

    Args:
        scales: shapes of the numbers that were fitted.
    """
    own = written.metadata[METADATA]
    rows = own["rows"].items()
    lines = [f"{name}: {n:,} rows, {_rows(written, name, encoder)}" for name, n in rows]
    for feature in encoder.features:
        if isinstance(feature, IdEncoding):
            lines += _id_lines(own, feature)
        elif isinstance(feature, Number):
            lines += _number_lines(encoder, feature, scales.get(feature.name))
    for name, count in own.get("long_lists", {}).items():
        hotness = encoder[name].hotness
        lines.append(
            f"{name}: {count:,} lists are longer than the longest of train; the first {hotness} "
            "values of each are stored"
        )
    if spec.unused:
        lines.append(f"left out, in no channel: {rules.listing(spec.unused)}")
    return "\n".join(lines)


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


def _number_lines(encoder: Encoder, feature: Number, scale: Scale | None) -> list[str]:
    profile = encoder.profile.get(feature.column, ColumnProfile(0, 0))
    parts = []
    if profile.missing and feature.fill is not None:
        marked = f", marked in {feature.indicator}" if feature.indicator else ""
        share = f"{profile.missing_share:.2%} of train"
        parts.append(f"{feature.fill:g} replaces missing values, {share}{marked}")
    if feature.transformation == "standardize":
        parts.append(
            f"standardized, mean {feature.mean:g}, standard deviation {feature.deviation:g}"
        )
    elif feature.transformation != "none":
        reason = f", as {scale}" if scale is not None and scale.is_chosen else ""
        parts.append(f"transformed by {feature.transformation}{reason}")
    return [f"{feature.name}: {'; '.join(parts)}"] if parts else []


def _id_lines(own: dict, feature: IdEncoding) -> list[str]:
    name, cardinality = feature.name, feature.num_ids
    line = f"{name}: cardinality {cardinality:,}"
    if isinstance(feature, HashBuckets):
        return [f"{line}, hashed"]
    if isinstance(feature, Vocabulary):
        seen = f" of values seen {feature.threshold} times or more" * (feature.threshold > 1)
        new, evicted = (own.get(key, {}).get(name, 0) for key in ("new_values", "evicted"))
        line += f" ({new:,} new)" if new else ""
        line += f" ({evicted:,} evicted)" if evicted else ""
        shares = own["unknown_share"].items()
        listed = ", ".join(f"{share[name]:.2%} of {split}" for split, share in shares)
        padding = "padding, " * (feature.hotness > 1)
        line += f", vocabulary{seen}; id 0 ({padding}missing, rare or unknown): {listed}"
        note = f"note: '{name}' has no value that is frequent enough: leave it out"
        return [line] if cardinality > 1 else [line, note]
    few = cardinality > _SPARSE_FACTOR * max(own["rows"].values())
    if cardinality <= _SPARSE_CARDINALITY or not few:
        return [line]
    note = (
        f"note: '{name}' has few rows for its largest id, {cardinality - 1:,}; its table has a row "
        "for each id up to that: --categorify makes it small"
    )
    return [line, note]
