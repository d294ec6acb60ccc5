"""Facts of interactions: which rows happened, and whether the others come in whole series."""

from collections.abc import Iterator

import numpy as np

from dataloading.describe.columns import NumberFacts, column_blocks
from dataloading.describe.id_counts import IdFacts
from dataloading.interactions.candidate_rules import broken_series, series_key
from dataloading.interactions.stored import length_of_series, stores_labels
from dataloading.spec.feature_spec import (
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    TRAIN,
    USER_CHANNEL,
    FeatureSpec,
)

_ROWS = 1 << 20  # looked at together, or one series of more
_FEW = 0.5  # share of items in use below which ids are worth making dense


def has_interactions(spec: FeatureSpec) -> bool:
    """Whether rows are users and items."""
    return USER_CHANNEL in spec.channel_spec and ITEM_CHANNEL in spec.channel_spec


def interactions_of(
    spec: FeatureSpec, mapping: str, rows: dict[int, int], faults: list[str]
) -> str:
    """What the rows of a mapping are, for people; what is wrong with them is added to `faults`.

    Args:
        rows: chunk -> its rows, of the chunks of the mapping that can be read.
    """
    chunks = spec.source_spec[mapping]
    of_other_types = any(chunk.type != "split_binary" for chunk in chunks)
    if of_other_types or len(rows) < len(chunks) or len(set(rows.values())) > 1:
        return ""  # which is said elsewhere
    try:
        length = length_of_series(spec, mapping)
    except ValueError as error:
        if str(error) not in faults:  # of another mapping
            faults.append(str(error))
        return ""
    labels = spec.channel(LABEL_CHANNEL) if stores_labels(spec, mapping) else ()
    if length is None:
        num_negatives = _num_negatives(spec, mapping, labels[0]) if labels else 0
        if not num_negatives:
            return ", each an interaction"
        faults.append(
            f"mapping '{mapping}': feature '{labels[0]}': {num_negatives:,} labels of 0; the rows "
            "there are interactions, and negatives are drawn while training"
        )
        return ""
    faults += _broken(spec, mapping, labels[0], length, next(iter(rows.values())))
    return f", {next(iter(rows.values())) // length:,} series of {length:,}"


def rare_items_note(spec: FeatureSpec, mapping: str, facts: IdFacts | NumberFacts) -> list[str]:
    """A line where most items are in no row of `train`, else none."""
    is_item = facts.feature in spec.channel_spec.get(ITEM_CHANNEL, ()) and has_interactions(spec)
    if not is_item or mapping != TRAIN or isinstance(facts, NumberFacts):
        return []
    if facts.num_used >= _FEW * facts.cardinality:
        return []
    return [
        f"    note: negatives are drawn from all {facts.cardinality:,} items, and '{TRAIN}' has "
        f"{facts.num_used:,} of them; --categorify of dataloading.transcode numbers these alone"
    ]


def _num_negatives(spec: FeatureSpec, mapping: str, label: str) -> int:
    return sum(np.count_nonzero(labels == 0) for labels in _column(spec, mapping, label))


def _broken(spec: FeatureSpec, mapping: str, label: str, length: int, num_rows: int) -> list[str]:
    """The faults of a mapping whose rows come in series of `length`."""
    (user,) = spec.channel(USER_CHANNEL)
    rows_at_a_time = max(1, _ROWS // length) * length
    mixed, wrong = [], []
    for users, labels in zip(
        _regrouped(_column(spec, mapping, user), rows_at_a_time),
        _regrouped(_column(spec, mapping, label), rows_at_a_time),
        strict=True,
    ):
        end = len(users) // length * length
        found = broken_series(users[:end].reshape(-1, length), labels[:end].reshape(-1, length))
        for masks, mask in zip((mixed, wrong), found, strict=True):
            masks.append(mask)
    faults = []
    if num_rows % length:
        faults.append(
            f"mapping '{mapping}': {num_rows:,} rows, not whole series of {length:,} "
            f"('{series_key(mapping)}' in the metadata)"
        )
    for masks, feature, what in (
        (mixed, user, "of more than one user"),
        (wrong, label, "without exactly one label of 1"),
    ):
        broken = np.flatnonzero(np.concatenate(masks))
        if len(broken):
            faults.append(
                f"mapping '{mapping}': feature '{feature}': {len(broken):,} series {what}, the "
                f"first in rows {broken[0] * length} to {(broken[0] + 1) * length - 1} (counted "
                "from 0)"
            )
    return faults


def _column(spec: FeatureSpec, mapping: str, feature: str) -> Iterator[np.ndarray]:
    """The values of a feature of one value a row, some rows at a time."""
    (chunk,) = (chunk for chunk in spec.source_spec[mapping] if feature in chunk.features)
    return (columns[feature][:, 0] for columns in column_blocks(spec, chunk))


def _regrouped(arrays: Iterator[np.ndarray], num_rows: int) -> Iterator[np.ndarray]:
    """The same values, `num_rows` at a time; the last array may have fewer."""
    waiting, count = [], 0
    for array in arrays:
        waiting.append(array)
        count += len(array)
        if count >= num_rows:
            joined = np.concatenate(waiting)
            end = count // num_rows * num_rows
            yield from np.split(joined[:end], end // num_rows)
            waiting, count = [joined[end:]], count - end
    if count:
        yield np.concatenate(waiting)
