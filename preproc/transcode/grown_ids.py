"""Growth of the ids of an earlier data set, and the lineage of vocabularies."""

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from preproc.encoding.encoder import Encoder
from preproc.encoding.encoder_folder import digest
from preproc.encoding.encodings import Identity, smallest_dtype
from preproc.encoding.vocabulary import Vocabulary
from preproc.fitting.fit import Fit
from preproc.transcode.known import KnownData, parse_date
from preproc.transcode.transcode_flags import TranscodeOptions

_MOSTLY_NEW, _LEAST_VALUES = 0.5, 10


def grown_encoder(
    known: KnownData, fit: Fit, size_of: Callable[[str], int], flags: TranscodeOptions
) -> tuple[Encoder, dict]:
    """Returns the encoder with new ids for new values in train, and metadata about them.

    Args:
        size_of: feature of plain ids -> the largest id in the new rows + 1.

    Raises:
        ValueError: most values of a feature are new, without --allow_mostly_new.
    """
    features, new, evicted = [], {}, {}
    date = parse_date(flags.date)
    for feature in known.encoder.features:
        if isinstance(feature, Vocabulary):
            texts = fit.text_counts(feature.column, feature.is_integer)
            counts = fit.fetch_texts(texts.filter(texts.value.notnull()))
            if not flags.allow_mostly_new:
                _check_known(feature, counts, known)
            grown = feature.grown(counts, feature.threshold, date, flags.evict_after)
            stayed = len(feature.values)
            if grown.previous_ids is not None:
                stayed = len(grown.values) - grown.previous_ids.null_count
                evicted[feature.name] = len(feature.values) - stayed
            new[feature.name] = len(grown.values) - stayed
            feature = grown
        elif isinstance(feature, Identity):
            size = max(feature.cardinality, size_of(feature.name))
            feature = dataclasses.replace(feature, cardinality=size, dtype=smallest_dtype(size))
        features.append(feature)
    encoder = dataclasses.replace(known.encoder, features=tuple(features))
    return encoder, {"new_values": new} | ({"evicted": evicted} if evicted else {})


def _check_known(feature: Vocabulary, counts: pa.Table, known: KnownData) -> None:
    """Raises ValueError where most values of a column are unknown to the vocabulary that grows."""
    is_known = pa.array(feature.positions(counts["value"].combine_chunks()) >= 0)
    sums = [int(pc.sum(rows["count"]).as_py() or 0) for rows in (counts, counts.filter(is_known))]
    profile = known.encoder.profile.get(feature.column)
    trained = 0.0 if profile is None else profile.unknown or 0.0
    share = 1 - sums[1] / max(sums[0], 1)
    if share > max(_MOSTLY_NEW, 2 * trained) and sums[0] >= _LEAST_VALUES:
        raise ValueError(
            f"--grow: {share:.1%} of the values of '{feature.name}' are unknown to "
            f"{known.path.parent}: columns, spelling or prefixes may have changed; if the values "
            "are right, add --allow_mostly_new"
        )


def dated(encoder: Encoder, date: str | None) -> Encoder:
    """Returns an encoder whose values occurred on a day, which is kept; None: it is not."""
    if date is None:
        return encoder
    features = []
    for feature in encoder.features:
        if isinstance(feature, Vocabulary):
            days = pa.array([parse_date(date)] * len(feature.values), pa.date32())
            feature = dataclasses.replace(feature, last_seen=days)
        features.append(feature)
    return dataclasses.replace(encoder, features=tuple(features))


def lineage(encoder: Encoder, known: KnownData | None, date: str | None, evicted: bool) -> dict:
    """Returns the day of the rows, and the ids that those of a data set continue, as metadata."""
    own: dict = {} if date is None else {"date": str(date)}
    earlier = [] if known is None else list(known.id_spaces)
    if known is not None and known.ancestors is not None:
        own["grown_from"] = list(known.ancestors[: 1 if evicted else None])
    elif known is not None:
        return own | {"encoded_as": known.spec.fingerprint(), "id_spaces": earlier}
    vocabularies = [f for f in encoder.features if isinstance(f, Vocabulary)]
    if not vocabularies:
        return own
    id_spaces = [digest(vocabularies, ())]
    if evicted:
        own |= {"evicted_from": earlier[0]} if earlier else {}
    else:
        id_spaces += [space for space in earlier if space not in id_spaces]
    return own | {"id_spaces": id_spaces}
