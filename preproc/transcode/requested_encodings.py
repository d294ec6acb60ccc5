"""Encodings that flags and feature spec request of new data."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dataloading.spec import rules
from dataloading.spec.feature_spec import LABEL_CHANNEL, NUMERICAL_CHANNEL, TRAIN
from preproc.encoding.encodings import HashBuckets, Identity, Label
from preproc.encoding.numbers import MEAN
from preproc.fitting.fit import NumberRequest, Request, VocabularyRequest
from preproc.fitting.transformation import AUTO, NONE, TRANSFORMATIONS
from preproc.transcode.per_feature import (
    ALL,
    parse_buckets,
    parse_fill,
    parse_threshold,
    parse_transform,
)
from preproc.transcode.raw.spec import RawSpec
from preproc.transcode.transcode_flags import TranscodeOptions


def categorified(spec: RawSpec, flags: TranscodeOptions, is_table: bool) -> tuple[str, ...]:
    """Returns the features of ids that get vocabularies.

    Args:
        is_table: the raw data has no feature spec: all of them do.

    Raises:
        ValueError: a flag names a feature that cannot be encoded so.
    """
    buckets = parse_buckets(flags.hash_buckets)
    categorify = ALL if is_table and flags.categorify is None else flags.categorify
    if categorify == ALL:
        names = tuple(name for name in spec.ids if name not in buckets)
    else:
        names = () if categorify is None else tuple(categorify.split(","))
    for flag, own in (("categorify", names), ("hash_buckets", tuple(buckets))):
        for name in own:
            if name not in spec.ids:
                raise ValueError(
                    f"--{flag} names '{name}'; expected a feature of ids; those of {spec.origin} "
                    f"are {rules.listing(spec.ids)}" + rules.suggestion(name, spec.ids)
                )
            if own.count(name) > 1:
                raise ValueError(f"--{flag} names '{name}' twice; expected each feature once")
    _check_cardinalities(spec, names, buckets)
    if flags.frequency_threshold is not None and not names:
        raise ValueError("--frequency_threshold is only read with --categorify")
    if flags.date is not None and not names:
        raise ValueError(
            "--date is kept with the values of --categorify: expected a feature there, got none"
        )
    if names and TRAIN not in spec.sources:
        raise _no_train(spec, "--categorify counts values in")
    return names


def _no_train(spec: RawSpec, reason: str) -> ValueError:
    return ValueError(
        f"{reason} the split '{TRAIN}'; {spec.origin} has {rules.listing(spec.sources)}. To encode "
        "more rows as an earlier data set has them, use --vocabulary"
    )


def _check_cardinalities(spec: RawSpec, names: Sequence[str], buckets: Mapping[str, int]) -> None:
    """Raises ValueError where a stated cardinality is not that of the encoding."""
    for name in names:
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


def feature_requests(
    spec: RawSpec,
    flags: TranscodeOptions,
    is_table: bool,
    size_of: Callable[[str], int],
    label: Label | None,
) -> list[Request]:
    """Returns the encodings of the features in their order, those that need rows as requests.

    Args:
        is_table: see `categorified`.
        size_of: feature of plain ids -> its cardinality, where it is not stated.
        label: encoding of the label of clicks.
    """
    names, buckets = categorified(spec, flags, is_table), parse_buckets(flags.hash_buckets)
    numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
    default = MEAN if is_table and flags.fill_missing is None else flags.fill_missing
    fills = parse_fill(default, numericals, spec.origin)
    transforms = dict.fromkeys(numericals, AUTO if is_table else NONE)
    transforms |= parse_transform(flags.transform, numericals, spec.origin)
    indicators = _indicators(spec, flags, fills, is_table)
    fitted = sorted({*fills.values(), *transforms.values()} & {MEAN, *TRANSFORMATIONS} - {NONE})
    if TRAIN not in spec.sources and fitted:
        raise _no_train(spec, f"'{fitted[0]}' follows from the values of")
    threshold = parse_threshold(flags.frequency_threshold)
    if threshold is None and spec.is_interactions:
        threshold = 0
    requests: list[Request] = []
    for name, keys in spec.features.items():
        dtype, hotness = keys.get("dtype", ""), spec.hotness(name)
        common = {"name": name, "column": name, "dtype": dtype, "hotness": hotness}
        if name in numericals:
            request = NumberRequest(
                name, dtype or "float32", hotness, transforms[name], fills.get(name),
                indicators.get(name),
            )  # fmt: skip
            requests.append(request)
        elif name in spec.channels[LABEL_CHANNEL]:
            own = {"name": name, "column": name, "dtype": dtype or "bool"}
            requests.append(Label(**own) if label is None else replace(label, **own))
        elif name in names:
            requests.append(VocabularyRequest(name, dtype, hotness, threshold))
        elif name in buckets:
            requests.append(HashBuckets(**common, buckets=buckets[name]))
        else:
            size = keys.get("cardinality") or size_of(name)
            requests.append(Identity(**common, cardinality=size))
    return requests


def _indicators(
    spec: RawSpec, flags: TranscodeOptions, fills: Collection[str], is_table: bool
) -> dict[str, str]:
    """Returns filled feature -> name of the feature that marks its missing values.

    By default for those of a table; not where it has a column of the indicator's name.
    """
    if flags.missing_indicator and (flags.no_missing_indicator or not fills):
        expected = "one of the two" if flags.no_missing_indicator else "--fill_missing"
        other = " and --no_missing_indicator" * flags.no_missing_indicator
        raise ValueError(f"--missing_indicator{other} marks filled values: expected {expected}")
    names = {name: f"{name}_missing" for name in fills}
    if flags.missing_indicator:
        return names
    if flags.no_missing_indicator or not is_table:
        return {}
    taken = {*spec.features, *spec.unused}
    return {name: indicator for name, indicator in names.items() if indicator not in taken}
