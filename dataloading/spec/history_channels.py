"""The five channels of a data set of histories, and the rules between them.

They are those of NVIDIA's SIM: a user, a target item, a history of items and one of negatives.
"""

from dataclasses import dataclass

from dataloading.spec.feature_spec import LABEL_CHANNEL, NEGATIVE_CHANNEL, FeatureSpec

CHUNK_TYPE = "tfrecord"  # a record holds all features
FIXED_TYPE, RANGES_TYPE = "split_binary", "ragged_binary"
USER_CHANNEL = "user_features"
TARGET_CHANNEL = "target_item_features"
POSITIVE_CHANNEL = "positive_history"
_READER = "a sequence model"


@dataclass(frozen=True)
class SequenceChannels:
    """The features of each channel in its order.

    The features of `target`, `positive` and `negative` with the same number are of one kind, and
    share a table: equal cardinalities.
    """

    label: tuple[str, ...]  # one feature; none where labels are not read
    user: tuple[str, ...]  # may be empty
    target: tuple[str, ...]
    positive: tuple[str, ...]
    negative: tuple[str, ...]  # empty where the spec has no such channel
    history_length: int  # steps of a history, including padding


def has_histories(spec: FeatureSpec) -> bool:
    """Returns whether the rows of a data set are users, target items and histories."""
    return TARGET_CHANNEL in spec.channel_spec


def stores_ranges(spec: FeatureSpec, split: str) -> bool:
    """Returns whether the histories of a split are ranges of sorted events, not TFRecords."""
    return any(chunk.type == RANGES_TYPE for chunk in spec.source_spec.get(split, ()))


def draws_labels(spec: FeatureSpec, split: str) -> bool:
    """Returns whether each row of a split is a positive sample, and a negative one is drawn."""
    stored = {name for chunk in spec.source_spec[split] for name in chunk.features}
    labels = spec.channel_spec.get(LABEL_CHANNEL, ())
    return stores_ranges(spec, split) and bool(labels) and not stored.intersection(labels)


def sequence_channels(
    spec: FeatureSpec,
    splits: tuple[str, ...] = (),
    *,
    with_labels: bool = True,
    with_negatives: bool = True,
) -> SequenceChannels:
    """Returns the channels of a spec, checked.

    Args:
        splits: must be there and store these features: as one chunk of type `tfrecord`, or with the
            positive history as one of type `ragged_binary`; then labels may be absent, and negative
            histories are not stored.
        with_labels: False: the channel `label` is not looked at.
        with_negatives: False: the channel `negative_history` may be absent.

    Raises:
        ValueError: a channel is missing, or the channels do not fit each other.
    """
    histories: tuple[str, ...] = (POSITIVE_CHANNEL,)
    if with_negatives or NEGATIVE_CHANNEL in spec.channel_spec:
        histories += (NEGATIVE_CHANNEL,)
    ids = (USER_CHANNEL, TARGET_CHANNEL, *histories)
    channels = (*ids, LABEL_CHANNEL) if with_labels else ids
    spec.require(_READER, channels=channels, id_channels=ids)
    for split in splits:
        _check_split(spec, split, channels, ids)
    for channel in (USER_CHANNEL, TARGET_CHANNEL):
        for feature in spec.channel(channel):
            if spec.hotness(feature) != 1:
                raise ValueError(
                    f"{spec.origin}: channel_spec: feature '{feature}' of channel '{channel}' has "
                    f"{spec.hotness(feature)} values per row; expected one, remove its hotness or "
                    "dimensions"
                )
    for channel in histories:
        _check_history(spec, channel)
    features = {channel: spec.channel(channel) for channel in channels}
    return SequenceChannels(
        label=features.get(LABEL_CHANNEL, ()),
        user=features[USER_CHANNEL],
        target=features[TARGET_CHANNEL],
        positive=features[POSITIVE_CHANNEL],
        negative=features.get(NEGATIVE_CHANNEL, ()),
        history_length=spec.hotness(features[POSITIVE_CHANNEL][0]),
    )


def _check_split(
    spec: FeatureSpec, split: str, channels: tuple[str, ...], ids: tuple[str, ...]
) -> None:
    """Raises ValueError unless the chunks of a split store the features of channels."""
    types: tuple[str, ...] = (CHUNK_TYPE,)
    if stores_ranges(spec, split):
        types = (FIXED_TYPE, RANGES_TYPE)
        channels = (USER_CHANNEL, TARGET_CHANNEL, POSITIVE_CHANNEL)
    spec.require(_READER, channels=channels, splits=(split,), chunk_types=types, id_channels=ids)
    chunks = spec.source_spec[split]
    if types == (CHUNK_TYPE,):
        if len(chunks) != 1:
            raise ValueError(
                f"{spec.origin}: source_spec: split '{split}' has {len(chunks)} chunks; {_READER} "
                "reads one, whose records hold all features of a row"
            )
        return
    ranges = [sorted(chunk.features) for chunk in chunks if chunk.type == RANGES_TYPE]
    if ranges != [sorted(spec.channel(POSITIVE_CHANNEL))]:
        raise ValueError(
            f"{spec.origin}: source_spec: split '{split}': chunks of type {RANGES_TYPE} store "
            f"{' and '.join(', '.join(names) for names in ranges)}; {_READER} reads one, of the "
            f"features of channel '{POSITIVE_CHANNEL}', all of them"
        )


def _check_history(spec: FeatureSpec, channel: str) -> None:
    """Raises ValueError unless the features of a history are of the same kinds as the targets."""
    features, targets = spec.channel(channel), spec.channel(TARGET_CHANNEL)
    if not targets or len(features) != len(targets):
        raise ValueError(
            f"{spec.origin}: channel_spec: channel '{channel}' has {len(features)} features "
            f"({', '.join(features)}) and channel '{TARGET_CHANNEL}' has {len(targets)} "
            f"({', '.join(targets)}); expected equally many, one or more, in the same order"
        )
    first = spec.channel(POSITIVE_CHANNEL)[0]
    for feature, target in zip(features, targets, strict=True):
        if spec.cardinality(feature) != spec.cardinality(target):
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{feature}' of channel '{channel}' has "
                f"cardinality {spec.cardinality(feature)} and feature '{target}' of channel "
                f"'{TARGET_CHANNEL}' has {spec.cardinality(target)}; expected the same, because "
                "they share a table. Are the channels in the same order?"
            )
        if spec.hotness(feature) != spec.hotness(first):
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{feature}' has {spec.hotness(feature)} "
                f"values per row and feature '{first}' has {spec.hotness(first)}; expected the "
                "same dimensions in all features of the histories"
            )


def num_ids(spec: FeatureSpec, feature: str) -> int:
    """Returns the number of ids of a user or item feature, which lie in [0, num_ids); 0 is padding.

    This is the cardinality, or one more in the feature specs of NVIDIA's `parquet_to_tfrecord.py`:
    there a cardinality N stands for the ids 1 to N. These specs are recognized by their TFRecords
    and their metadata, which lacks the sizes of prebatches that `sequence_spec` always writes.
    """
    is_ours = any(
        prebatch_key(split) in spec.metadata or stores_ranges(spec, split)
        for split in spec.source_spec
    )
    return spec.cardinality(feature) + (not is_ours)


def prebatch_key(split: str) -> str:
    """Returns the metadata key of the samples per prebatch of a split."""
    return f"prebatch_{split}_size"
