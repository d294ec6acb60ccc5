"""The report of `transcode` on the data set that it made."""

from pathlib import Path

from dataloading.interactions.stored import length_of_series
from dataloading.spec import rules
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.transcode.encode.numericals import LARGE
from dataloading.transcode.encoding import METADATA
from dataloading.transcode.raw_spec import RawSpec

# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100
_MOST_WARNINGS = 5


def summary(spec: RawSpec, written: FeatureSpec, output: Path) -> str:
    """Returns the report on a data set."""
    own = written.metadata[METADATA]
    lines = []
    for mapping, rows in own["rows"].items():
        lines.append(f"{mapping}: {rows:,} rows, {_what_rows_are(written, mapping)}")
    for name in spec.ids:
        cardinality = written.cardinality(name)
        how = _unknown(own, name) if name in own["vocabulary"] else ""
        how = "hashed" if name in own["hash_buckets"] else how
        lines.append(f"{name}: cardinality {cardinality:,}" + (f", {how}" if how else ""))
        few = cardinality > _SPARSE_FACTOR * max(own["rows"].values())
        if not how and cardinality > _SPARSE_CARDINALITY and few:
            lines.append(
                f"note: '{name}' has few rows for its largest id, {cardinality - 1:,}; its table "
                "has a row for each id up to that: --categorify makes it small"
            )
        if cardinality == 1 and name in own["vocabulary"]:
            lines.append(f"note: '{name}' has no value that is frequent enough: leave it out")
    for name, value in own.get("fill_missing", {}).items():
        lines.append(_filled(own, name, value))
    for name, scale in own.get("standardize", {}).items():
        mean, deviation = scale["mean"], scale["standard_deviation"]
        lines.append(f"{name}: standardized, mean {mean:g}, standard deviation {deviation:g}")
    if spec.unused:
        lines.append(f"left out, in no channel: {rules.listing(spec.unused)}")
    warnings = own.get("warnings", [])
    lines += [f"warning: {text}" for text in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        more = len(warnings) - _MOST_WARNINGS
        lines.append(f"warning: {more} more features like these: metadata of the feature spec")
    if warnings and "frequency_threshold" in own:
        lines.append(
            "warning: possible solutions: a larger --frequency_threshold, --hash_buckets, or "
            "leaving the feature out"
        )
    if unscaled := own.get("unscaled"):
        names = ",".join([*own.get("standardize", {}), *unscaled])
        lines.append(
            f"warning: {rules.listing(unscaled)}: the mean or standard deviation in '{TRAIN}' "
            f"is above {LARGE}, so models may train badly: --standardize {names}"
        )
    return "\n".join([*lines, f"written: {output}"])


def _filled(own: dict, feature: str, value: float) -> str:
    """Returns the line on the missing values of a numerical feature."""
    shares = (f"{share[feature]:.2%} of {name}" for name, share in own["missing_share"].items())
    indicator = own["missing_indicators"].get(feature)
    marked = f", marked in {indicator}" if indicator else ""
    return f"{feature}: missing values are {value:g}: {', '.join(shares)}{marked}"


def _what_rows_are(written: FeatureSpec, mapping: str) -> str:
    """Returns the kind of the rows of a mapping."""
    own = written.metadata[METADATA]
    if "click_rate" in own:
        rate = own["click_rate"].get(mapping)
        return "no label" if rate is None else f"click rate {rate:.4f}"
    length = length_of_series(written, mapping)
    if length is None:
        return "each an interaction"
    return f"{own['rows'][mapping] // length:,} series of {length:,}"


def _unknown(own: dict, feature: str) -> str:
    """Returns the shares of the mappings that have id 0."""
    shares = (f"{shares[feature]:.2%} of {name}" for name, shares in own["unknown_share"].items())
    threshold = own.get("frequency_threshold", {}).get(feature)
    least = (
        "" if threshold is None or threshold < 2 else f" of values seen {threshold} times or more"
    )
    return f"vocabulary{least}; id 0 (missing, rare or unknown): " + ", ".join(shares)
