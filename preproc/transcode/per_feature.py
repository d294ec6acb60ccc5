"""Values of flags that have one per feature: fill values, transformations, buckets, thresholds."""

from collections.abc import Sequence

from dataloading.spec import rules
from preproc.encoding.numbers import fill_value
from preproc.fitting.transformation import AUTO, TRANSFORMATIONS

ALL = "all"  # features of --categorify
_MAX_COUNT = (1 << 63) - 1


def parse_per_feature(flag: str, text: str | None, names: Sequence[str], origin: str) -> dict:
    """Returns feature -> word, from one word for all `names`, or `feature=word,...`, or both.

    Raises:
        ValueError: a name is not among `names`, or occurs twice.
    """
    words: dict[str, str] = {}
    default = None
    for item in text.split(",") if text is not None else ():
        name, equals, word = item.rpartition("=")
        if not equals and default is None:
            default = word
        elif equals and name in names and name not in words:
            words[name] = word
        else:
            raise ValueError(
                f"{flag} has '{item}'; expected one value for all numerical features, or "
                "feature=value, comma-separated, each feature once; the numerical features of "
                f"{origin} are {rules.listing(names)}" + rules.suggestion(name or word, names)
            )
    if default is not None:
        words = {name: words.get(name, default) for name in names}
    return words


def parse_fill(text: str | None, names: Sequence[str], origin: str) -> dict[str, str | float]:
    """Returns the fill values of `--fill_missing`: `mean` or a finite number."""
    words = parse_per_feature("--fill_missing", text, names, origin)
    return {name: fill_value(word) for name, word in words.items()}


def parse_transform(text: str | None, names: Sequence[str], origin: str) -> dict[str, str]:
    """Returns the transformations of `--transform`."""
    words = parse_per_feature("--transform", text, names, origin)
    for word in words.values():
        if word not in TRANSFORMATIONS:
            raise ValueError(
                f"--transform is '{text}': expected {', '.join(TRANSFORMATIONS)}, got '{word}'"
                + rules.suggestion(word, TRANSFORMATIONS)
            )
    return words


def parse_buckets(text: str | None) -> dict[str, int]:
    """feature -> buckets, from `feature=N,feature=N`."""
    buckets = {}
    for item in text.split(",") if text else ():
        name, _, count = item.rpartition("=")
        valid = name and count.isdecimal() and 1 <= int(count) <= _MAX_COUNT
        if not valid or name in buckets:
            raise ValueError(
                f"--hash_buckets has '{item}'; expected feature=N with N from 1 to 2^63 - 1, "
                "comma-separated, each feature once"
            )
        buckets[name] = int(count)
    return buckets


def parse_threshold(text: str | None) -> int | None:
    """Returns a frequency threshold, or None for `auto`."""
    if text in (None, AUTO):
        return None
    if not text.isdecimal() or int(text) > _MAX_COUNT:
        raise ValueError(
            f"--frequency_threshold is '{text}'; expected '{AUTO}' or a whole number from 0 to "
            "2^63 - 1"
        )
    return int(text)
