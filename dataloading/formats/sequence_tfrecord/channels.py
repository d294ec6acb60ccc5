"""The five channels of a data set of histories, and the rules between them.

The format is that of NVIDIA's SIM: a user, a target item, a history of items and one of negatives.
"""

from dataclasses import dataclass

from dataloading.spec.feature_spec import LABEL_CHANNEL, FeatureSpec

CHUNK_TYPE = "tfrecord"
USER_CHANNEL = "user_features"
TARGET_CHANNEL = "target_item_features"
POSITIVE_CHANNEL = "positive_history"
NEGATIVE_CHANNEL = "negative_history"


@dataclass(frozen=True)
class SequenceChannels:
    """The features of each channel in its order.

    Attributes:
        label: of one feature; empty where labels are not read.
        user: may be empty.
        target, positive, negative: the features with the same number are of one kind, and share a
            table: equal cardinalities. At least one each; `negative` is empty where the spec has
            no such channel.
        history_length: steps of a history, with those that are padding.
    """

    label: tuple[str, ...]
    user: tuple[str, ...]
    target: tuple[str, ...]
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    history_length: int


def sequence_channels(
    spec: FeatureSpec,
    mappings: tuple[str, ...] = (),
    *,
    with_labels: bool = True,
    with_negatives: bool = True,
) -> SequenceChannels:
    """The channels of a spec, checked.

    Args:
        mappings: must be there, each as one chunk of type `tfrecord` with all these features.
        with_labels: False: the channel `label` is not looked at.
        with_negatives: False: the channel `negative_history` may be absent.

    Raises:
        ValueError: a channel is missing, or the channels do not fit each other.
    """
    negative = (NEGATIVE_CHANNEL,)
    if not with_negatives and NEGATIVE_CHANNEL not in spec.channel_spec:
        negative = ()
    ids = (USER_CHANNEL, TARGET_CHANNEL, POSITIVE_CHANNEL, *negative)
    labels = (LABEL_CHANNEL,) if with_labels else ()
    spec.require(
        "a sequence model",
        channels=(*labels, *ids),
        mappings=mappings,
        chunk_types=(CHUNK_TYPE,) if mappings else (),
        id_channels=ids,
    )
    for mapping in mappings:
        _check_one_chunk(spec, mapping)
    for channel in (USER_CHANNEL, TARGET_CHANNEL):
        for feature in spec.channel(channel):
            if spec.hotness(feature) != 1:
                raise ValueError(
                    f"{spec.origin}: channel_spec: feature '{feature}' of channel '{channel}' has "
                    f"{spec.hotness(feature)} values per row; allowed: one, remove its hotness or "
                    "dimensions"
                )
    lengths = {
        feature: spec.hotness(feature)
        for channel in (POSITIVE_CHANNEL, *negative)
        for feature in _like_targets(spec, channel)
    }
    history_length = next(iter(lengths.values()))
    for feature, length in lengths.items():
        if length != history_length:
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{feature}' has {length} values per row and "
                f"feature '{next(iter(lengths))}' has {history_length}; allowed: the same "
                "dimensions in all features of the histories"
            )
    return SequenceChannels(
        *(
            spec.channel(name) if name in (*labels, *ids) else ()
            for name in (LABEL_CHANNEL, *ids[:3], NEGATIVE_CHANNEL)
        ),
        history_length,
    )


def num_ids(spec: FeatureSpec, feature: str) -> int:
    """Returns the number of ids of a user or item feature, which lie in [0, num_ids); 0 is padding.

    This is the cardinality, or one more in the feature specs of NVIDIA's `parquet_to_tfrecord.py`:
    there a cardinality N stands for the ids 1 to N. These specs are recognized by their metadata,
    which lacks the sizes of prebatches that `sequence_spec` always writes.
    """
    is_ours = any(prebatch_key(mapping) in spec.metadata for mapping in spec.source_spec)
    return spec.cardinality(feature) + (not is_ours)


def prebatch_key(mapping: str) -> str:
    """Returns the key in a feature spec's metadata of the rows of a prebatch of a mapping."""
    return f"prebatch_{mapping}_size"


def _like_targets(spec: FeatureSpec, channel: str) -> tuple[str, ...]:
    """The features of a history, each of which must be of the same kind as that of the target."""
    features, targets = spec.channel(channel), spec.channel(TARGET_CHANNEL)
    if not targets or len(features) != len(targets):
        raise ValueError(
            f"{spec.origin}: channel_spec: channel '{channel}' has {len(features)} features "
            f"({', '.join(features)}) and channel '{TARGET_CHANNEL}' has {len(targets)} "
            f"({', '.join(targets)}); allowed: equally many, one or more, in the same order"
        )
    for feature, target in zip(features, targets, strict=True):
        if spec.cardinality(feature) != spec.cardinality(target):
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{feature}' of channel '{channel}' has "
                f"cardinality {spec.cardinality(feature)} and feature '{target}' of channel "
                f"'{TARGET_CHANNEL}' has {spec.cardinality(target)}; allowed: the same, because "
                "they share a table. Are the channels in the same order?"
            )
    return features


def _check_one_chunk(spec: FeatureSpec, mapping: str) -> None:
    chunks = spec.source_spec[mapping]
    if len(chunks) != 1:
        raise ValueError(
            f"{spec.origin}: source_spec: mapping '{mapping}' has {len(chunks)} chunks; a sequence "
            "model reads one, whose records hold all features of a row (split TFRecords of DLRM "
            "and DCNv2 have one per feature)"
        )
