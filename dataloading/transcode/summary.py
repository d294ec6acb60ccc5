"""The report of `transcode` on the data set that it made."""

from pathlib import Path

from dataloading.interactions.stored import length_of_lists
from dataloading.spec import rules
from dataloading.spec.data_set_files import METADATA
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.transcode.encode.numericals import LARGE
from dataloading.transcode.raw_spec import RawSpec

# With an id this large and so few rows, most rows of the table would never be trained.
_SPARSE_CARDINALITY = 1_000_000
_SPARSE_FACTOR = 100
_MOST_WARNINGS = 5


def summary(spec: RawSpec, written: FeatureSpec, output: Path) -> str:
    """Returns the report on a data set."""
    own = written.metadata[METADATA]
    lines = [f"{name}: {n:,} rows, {_rows(written, name)}" for name, n in own["rows"].items()]
    for name in spec.ids:
        lines += _id_lines(own, name, written.cardinality(name))
    for name, value in own.get("fill_missing", {}).items():
        indicator = own["missing_indicators"].get(name)
        marked = f", marked in {indicator}" if indicator else ""
        shares = _shares(own["missing_share"], name)
        lines.append(f"{name}: {value:g} replaces missing values, {shares}{marked}")
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
        again = "without --vocabulary: " if "grown_from" in own else ""
        lines.append(
            f"warning: possible solutions: {again}a larger --frequency_threshold, --hash_buckets, "
            "or leaving the feature out"
        )
    if unscaled := own.get("unscaled"):
        names = ",".join([*own.get("standardize", {}), *unscaled])
        lines.append(
            f"warning: {rules.listing(unscaled)}: the mean or standard deviation in '{TRAIN}' "
            f"is above {LARGE}, so models may train badly: --standardize {names}"
        )
    return "\n".join([*lines, f"written: {output}"])


def _rows(written: FeatureSpec, split: str) -> str:
    own = written.metadata[METADATA]
    if "click_rate" in own:
        rate = own["click_rate"].get(split)
        return "no label" if rate is None else f"click rate {rate:.4f}"
    length = length_of_lists(written, split)
    if length is None:
        return "each an interaction"
    return f"{own['rows'][split] // length:,} candidate lists of {length:,}"


def _id_lines(own: dict, name: str, cardinality: int) -> list[str]:
    line = f"{name}: cardinality {cardinality:,}"
    if name in own["hash_buckets"]:
        return [f"{line}, hashed"]
    if name in own["vocabulary"]:
        threshold = own.get("frequency_threshold", {}).get(name) or 0
        seen = f" of values seen {threshold} times or more" if threshold > 1 else ""
        shares = _shares(own["unknown_share"], name)
        new, evicted = (own.get(key, {}).get(name, 0) for key in ("new_values", "evicted"))
        line += f" ({new:,} new)" if new else ""
        line += f" ({evicted:,} evicted)" if evicted else ""
        line += f", vocabulary{seen}; id 0 (missing, rare or unknown): {shares}"
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


def _shares(shares: dict[str, dict[str, float]], name: str) -> str:
    return ", ".join(f"{share[name]:.2%} of {split}" for split, share in shares.items())
