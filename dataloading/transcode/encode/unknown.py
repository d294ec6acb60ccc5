"""When values without an id of their own are a danger, and the sentence that reports it.

A model learns the vector of id 0 from training rows alone. Where id 0 is far more frequent in other
rows than in training, these rows are scored with a vector that is hardly trained.
"""

# Thresholds of automatic vocabularies.
_LEAST, _MOST = 2, 10
# Values in train for each occurrence that a value needs.
_VALUES_PER_OCCURRENCE = 500
# From this share of values that occur once on, new values are common.
_MANY_SINGLE = 0.1
# Of the values of a feature; a smaller share cannot move a metric much.
_SMALLEST_SHARE = 0.01
_FACTOR = 2


def automatic_threshold(num_values: int, num_single: int) -> int:
    """Returns how often a value must occur in training to get an id of its own.

    The share of values that occur once in training is the Good-Turing estimate of the share of new
    values in later rows. With a threshold of 2, id 0 is therefore as frequent in training as it is
    later, and its vector is trained. Where a tenth of the values or more occur once, a model learns
    rare ids by heart and meets new ones all the time: a 500th of the values, at most 10.
    docs/your_own_data.md has the measurement.

    Args:
        num_values: values of the feature in the training rows.
        num_single: those of them that occur once.
    """
    if num_single < _MANY_SINGLE * num_values:
        return _LEAST
    return min(max(num_values // _VALUES_PER_OCCURRENCE, _LEAST), _MOST)


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained


def unknown_warning(
    feature: str,
    mapping: str,
    share: float,
    trained: float,
    frequent: tuple[str, float] | None,
) -> str:
    """Returns the sentence for the user.

    Args:
        share, trained: of id 0 in `mapping` and in the training rows.
        frequent: the most frequent value without an id in `mapping`, and its share; None: only
            missing values have no id.
    """
    most = "all of them are missing"
    if frequent is not None:
        value, value_share = frequent
        most = f"the most frequent value without an id is {value!r:.60} ({value_share:.2%})"
    return (
        f"'{feature}': {share:.2%} of the values of {mapping} have id 0, and {trained:.2%} of "
        f"train, from which its vector is learned; {most}"
    )
