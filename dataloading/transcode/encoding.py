"""Encoding of raw values as ids and numbers: requested by flags, or that of an earlier data set."""

import argparse
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataloading.keys.growth import Growth, last_seen_file
from dataloading.spec import rules
from dataloading.spec.data_set_files import METADATA, SPEC_FILE
from dataloading.spec.feature_spec import TRAIN, USER_CHANNEL, FeatureSpec
from dataloading.transcode.arguments import ALL, parse_buckets, parse_threshold
from dataloading.transcode.encode.numericals import (
    NONE,
    NumericalRules,
    known_rules,
    parse_fill,
    parse_standardize,
)
from dataloading.transcode.encode.vocabulary import check_last_seen
from dataloading.transcode.raw_spec import ID_CHANNELS, RawSpec

_FLAGS = (
    *("categorify", "hash_buckets", "frequency_threshold", "fill_missing", "standardize"),
    "missing_indicator",
)


@dataclass(frozen=True)
class GrowthRequest:
    """Growth of the ids of an earlier data set by the values of `train`."""

    cardinalities: Mapping[str, int]  # features whose ids grow -> cardinality so far
    # of those with a vocabulary -> occurrences that a new value needs
    thresholds: Mapping[str, int]
    ancestors: tuple[str, ...]  # see `keys.growth.Growth`
    evict_after: int | None = None  # days after which values are evicted; None: no value is


@dataclass(frozen=True)
class Encoding:
    """Encoding of the features of ids that are not ids yet, and of numerical values."""

    # features whose values get ids by falling count in the split `train`
    categorify: tuple[str, ...] = ()
    # values that occur there less often become `vocabulary.UNKNOWN`; None: chosen per feature by
    # `texts.automatic_threshold`
    frequency_threshold: int | None = None
    # feature -> cardinality N; the id is the value's XXH64 modulo N
    hash_buckets: dict[str, int] = field(default_factory=dict)
    # features of `categorify` -> the text file that has their values already
    vocabularies: dict[str, Path] = field(default_factory=dict)
    # of these -> the share of `UNKNOWN` in the rows that the vocabulary is from
    trained_unknown: Mapping[str, float] = field(default_factory=dict)
    numericals: NumericalRules = field(default_factory=NumericalRules)
    date: datetime.date | None = None  # day of the rows, kept with their values; None: not kept
    # growth of `vocabularies` and of plain ids; None: they stay
    growth: GrowthRequest | None = None
    id_spaces: tuple[str, ...] = ()  # see `keys.growth.Growth`; of the data set of `vocabularies`


@dataclass(frozen=True)
class KnownData:
    """An earlier data set of transcode: the file of its feature spec, the spec, its encoding."""

    path: Path
    spec: FeatureSpec
    encoding: Encoding

    @classmethod
    def read(cls, flags: argparse.Namespace) -> "KnownData":
        """Reads the data set of --vocabulary, whose encoding no flag may contradict."""
        for name in _FLAGS:
            if getattr(flags, name) not in (None, False):
                raise ValueError(
                    f"--{name} and --vocabulary: the encoding is that of {flags.vocabulary}; give "
                    "one of the two"
                )
        path = Path(flags.vocabulary)
        path = path / SPEC_FILE if path.is_dir() else path
        spec = FeatureSpec.from_yaml(path)
        own = spec.metadata.get(METADATA)
        parts = ("vocabulary", "hash_buckets")
        if not isinstance(own, dict) or not all(isinstance(own.get(part), dict) for part in parts):
            raise ValueError(
                f"--vocabulary {flags.vocabulary}: is not a data set of dataloading.transcode "
                f"({path} has no metadata '{METADATA}')"
            )
        files = {name: path.parent / file for name, file in own["vocabulary"].items()}
        shares = own.get("unknown_share")
        trained = shares.get(TRAIN) if isinstance(shares, dict) else None
        encoding = Encoding(
            categorify=tuple(files),
            hash_buckets=own["hash_buckets"],
            vocabularies=files,
            trained_unknown=trained if isinstance(trained, dict) else {},
            numericals=known_rules(own, str(path)),
            date=parse_date(flags.date),
            growth=_growth(flags, spec, own, files) if flags.grow else None,
            id_spaces=Growth.from_spec(spec).id_spaces,
        )
        return cls(path, spec, encoding)

    @property
    def derived(self) -> set[str]:
        """The features that raw data does not have."""
        return set(self.encoding.numericals.known_indicators.values())


def _growth(
    flags: argparse.Namespace, spec: FeatureSpec, own: dict, vocabularies: Mapping[str, Path]
) -> GrowthRequest:
    where, days = f"--grow: the data set {flags.vocabulary}", flags.evict_after
    ids = [name for channel in ID_CHANNELS for name in spec.channel_spec.get(channel, ())]
    growing = {name: spec.cardinality(name) for name in ids if name not in own["hash_buckets"]}
    if not growing:
        raise ValueError(
            f"{where} has no ids that can grow: expected a vocabulary or plain ids, got "
            f"{rules.listing(ids)} with --hash_buckets, whose number is fixed; leave --grow out"
        )
    thresholds = own.get("frequency_threshold", {})
    if missing := sorted(set(own["vocabulary"]) - set(thresholds)):
        raise ValueError(
            f"{where} has the vocabulary of '{missing[0]}' from another data set: expected the "
            "data set that made the vocabulary, or made it grow"
        )
    if "date" in own and flags.date is None:
        raise ValueError(
            f"{where} keeps the days of its values (--date {own['date']}): expected the day of the "
            "new rows, --date YYYY-MM-DD"
        )
    if "date" in own:
        known_date = parse_date(str(own["date"]), f"{flags.vocabulary}: metadata 'date'")
        if parse_date(flags.date) < known_date:
            raise ValueError(
                f"--date {flags.date}: expected the day of the new rows, {known_date} or later, "
                f"which is the day of {flags.vocabulary}"
            )
        for name, file in vocabularies.items():
            check_last_seen(last_seen_file(file), growing[name] - 1)
    if days is not None and (days < 1 or flags.date is None or USER_CHANNEL in spec.channel_spec):
        raise ValueError(
            f"--evict_after {days}: expected 1 or more days, --date, and features of clicks; got "
            f"--date {flags.date}, and the channels {rules.listing(spec.channel_spec)}"
        )
    earlier = () if own.get("evicted") else Growth.from_spec(spec).ancestors
    return GrowthRequest(growing, thresholds, (spec.fingerprint(), *earlier), days)


def parse_date(text: str | None, name: str = "--date") -> datetime.date | None:
    """Returns the date of --date, or of what has this name in messages; None without it."""
    try:
        return None if text is None else datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is '{text}'; expected a day such as 2026-11-26") from None


def new_encoding(spec: RawSpec, flags: argparse.Namespace, is_file: bool) -> Encoding:
    """Returns the encoding that the flags request; `is_file`: --input is a file."""
    buckets = parse_buckets(flags.hash_buckets)
    categorify = ALL if is_file and flags.categorify is None else flags.categorify
    if categorify == ALL:
        names = tuple(name for name in spec.ids if name not in buckets)
    else:
        names = () if categorify is None else tuple(categorify.split(","))
    _check_ids(spec, names, buckets)
    threshold = parse_threshold(flags.frequency_threshold)
    if flags.frequency_threshold is not None and not names:
        raise ValueError("--frequency_threshold is only read with --categorify")
    if threshold is None and spec.is_interactions:
        threshold = 0  # each user and item is one of its own
    if flags.missing_indicator and flags.fill_missing is None:
        raise ValueError(
            "--missing_indicator marks values that --fill_missing fills: expected both flags"
        )
    standardize = flags.standardize
    if standardize is None:
        standardize = ALL if is_file else NONE
    numericals = NumericalRules(
        parse_fill(flags.fill_missing, spec),
        flags.missing_indicator,
        parse_standardize(standardize, spec),
    )
    date = parse_date(flags.date)
    if date is not None and not names:
        raise ValueError("--date is kept with the values of --categorify: expected both flags")
    return Encoding(names, threshold, buckets, numericals=numericals, date=date)


def _check_ids(spec: RawSpec, names: tuple[str, ...], buckets: dict[str, int]) -> None:
    for flag, features in (("categorify", names), ("hash_buckets", buckets)):
        for name in features:
            if name not in spec.ids:
                raise ValueError(
                    f"--{flag} names '{name}'; the features of {spec.origin} that are ids are "
                    f"{rules.listing(spec.ids)}" + rules.suggestion(name, spec.ids)
                )
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--categorify names '{name}' twice; expected once")
        if name in buckets:
            raise ValueError(f"--categorify and --hash_buckets both name '{name}'; expected one")
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
    if names and TRAIN not in spec.sources:
        raise ValueError(
            f"--categorify counts values in the split '{TRAIN}'; {spec.origin} has "
            f"{rules.listing(spec.sources)}. To encode more rows as an earlier data set has "
            "them, use --vocabulary"
        )
