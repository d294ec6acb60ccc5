"""Encoding of raw values as ids and numbers: requested by flags, or that of an earlier data set."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataloading.spec import rules
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.spec.output_folder import SPEC_FILE
from dataloading.transcode.arguments import ALL, parse_buckets, parse_threshold
from dataloading.transcode.encode.missing import FillRule, known_fill, parse_fill
from dataloading.transcode.encode.standardize import (
    NONE,
    StandardizeRule,
    known_standardize,
    parse_standardize,
)
from dataloading.transcode.raw_spec import RawSpec

METADATA = "transcode"  # key of what transcode stores in the metadata of a data set


@dataclass(frozen=True)
class Encoding:
    """Encoding of the features of ids that are not ids yet, and of numerical values.

    categorify: features whose values get ids by falling count in the mapping `train`.
    frequency_threshold: values that occur there less often become `vocabulary.UNKNOWN`; None:
        chosen per feature by `transcode_unknown.automatic_threshold`.
    hash_buckets: feature -> cardinality N; the id is the value's XXH64 modulo N.
    vocabularies: features of `categorify` -> the text file that has their values already.
    trained_unknown: of these -> the share of `UNKNOWN` in the rows that the vocabulary is from.
    fill: what becomes of missing numerical values.
    standardize: the numerical features that are standardized.
    """

    categorify: tuple[str, ...] = ()
    frequency_threshold: int | None = None
    hash_buckets: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, Path] = field(default_factory=dict)
    trained_unknown: Mapping[str, float] = field(default_factory=dict)
    fill: FillRule = field(default_factory=FillRule)
    standardize: StandardizeRule = field(default_factory=StandardizeRule)


class KnownData:
    """An earlier data set of transcode, as --vocabulary names it.

    Attributes:
        path: its feature spec.
        spec: the same, read.
        own: what transcode stored in its metadata.
    """

    def __init__(self, path: Path, spec: FeatureSpec, own: dict):
        self.path, self.spec, self.own = path, spec, own
        self.fill = known_fill(own, str(path))
        self.standardize = known_standardize(own, str(path))
        self.derived = set(self.fill.known_indicators.values())

    @classmethod
    def read(cls, vocabulary: str) -> "KnownData":
        """Reads a data set from its folder or its feature spec.

        Raises:
            ValueError: transcode did not write it.
        """
        path = Path(vocabulary)
        path = path / SPEC_FILE if path.is_dir() else path
        known = FeatureSpec.from_yaml(path)
        own = known.metadata.get(METADATA)
        parts = ("vocabulary", "hash_buckets")
        if not isinstance(own, dict) or not all(isinstance(own.get(part), dict) for part in parts):
            raise ValueError(
                f"--vocabulary {vocabulary}: is not a data set of dataloading.transcode ({path} "
                f"has no metadata '{METADATA}')"
            )
        return cls(path, known, own)


def new_encoding(spec: RawSpec, flags: argparse.Namespace) -> Encoding:
    """Returns the encoding that the flags request."""
    is_file = Path(flags.input).is_file()
    defaults = {"categorify": ALL, "standardize": ALL} if is_file else {"standardize": NONE}
    texts = defaults | {name: value for name, value in vars(flags).items() if value is not None}
    buckets = parse_buckets(flags.hash_buckets)
    names = _categorified(spec, texts.get("categorify"), buckets)
    _check_ids(spec, names, buckets)
    if names and TRAIN not in spec.sources:
        raise ValueError(
            f"--categorify counts values in the mapping '{TRAIN}'; {spec.origin} has "
            f"{rules.listing(spec.sources)}. To encode more rows as an earlier data set has "
            "them, use --vocabulary"
        )
    threshold = parse_threshold(flags.frequency_threshold)
    if flags.frequency_threshold is not None and not names:
        raise ValueError("--frequency_threshold is only read with --categorify")
    if threshold is None and spec.is_interactions:
        threshold = 0  # each user and item is one of its own
    return Encoding(
        names,
        threshold,
        buckets,
        fill=parse_fill(flags.fill_missing, spec, flags.missing_indicator),
        standardize=parse_standardize(texts["standardize"], spec),
    )


def _categorified(spec: RawSpec, text: str | None, buckets: dict[str, int]) -> tuple[str, ...]:
    """Returns the features of --categorify."""
    if text == ALL:
        return tuple(name for name in spec.ids if name not in buckets)
    return () if text is None else tuple(text.split(","))


def _check_ids(spec: RawSpec, names: Sequence[str], buckets: dict[str, int]) -> None:
    """Raises ValueError where --categorify or --hash_buckets do not fit the features."""
    for flag, features in (("categorify", names), ("hash_buckets", buckets)):
        for name in features:
            if name not in spec.ids:
                raise ValueError(
                    f"--{flag} names '{name}'; the features of {spec.origin} that are ids are "
                    f"{rules.listing(spec.ids)}" + rules.suggestion(name, spec.ids)
                )
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--categorify names '{name}' twice; allowed: once")
        if name in buckets:
            raise ValueError(f"--categorify and --hash_buckets both name '{name}'; allowed: one")
        if "cardinality" in spec.features[name]:
            raise ValueError(
                f"--categorify {name}: {spec.origin} gives it the cardinality "
                f"{spec.features[name]['cardinality']}, but it follows from the values: write "
                "'cardinality: auto'"
            )
    for name, count in buckets.items():
        if spec.features[name].get("cardinality", count) != count:
            raise ValueError(
                f"--hash_buckets {name}={count}: {spec.origin} gives it the cardinality "
                f"{spec.features[name]['cardinality']}; write 'cardinality: auto'"
            )


def check_no_encoding(flags: argparse.Namespace) -> None:
    """Raises ValueError where flags contradict the encoding that --vocabulary names."""
    for name in (
        "categorify",
        "hash_buckets",
        "frequency_threshold",
        "fill_missing",
        "standardize",
    ):
        if getattr(flags, name) is not None:
            raise ValueError(
                f"--{name} and --vocabulary: the encoding is that of {flags.vocabulary}; give one "
                "of the two"
            )
    if flags.missing_indicator:
        raise ValueError(
            f"--missing_indicator and --vocabulary: the encoding is that of {flags.vocabulary}; "
            "give one of the two"
        )


def known_encoding(known: KnownData) -> Encoding:
    """The encoding of an earlier data set (--vocabulary)."""
    files = {name: known.path.parent / file for name, file in known.own["vocabulary"].items()}
    shares = known.own.get("unknown_share")
    trained = shares.get(TRAIN) if isinstance(shares, dict) else None
    return Encoding(
        categorify=tuple(files),
        hash_buckets=known.own["hash_buckets"],
        vocabularies=files,
        trained_unknown=trained if isinstance(trained, dict) else {},
        fill=known.fill,
        standardize=known.standardize,
    )
