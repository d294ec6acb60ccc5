"""Encoder of a multi-hot data set: that of its source, whose ids are extended."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dataloading.spec.data_set_files import ENCODER_FOLDER
from preproc.criteo.multi_hot.output import PartWriter
from preproc.encoding import folder
from preproc.encoding.encodings import IdEncoding
from preproc.encoding.extension import Extension


def write_encoder(
    writer: PartWriter, distribution: str, states: Sequence[str | None]
) -> dict[str, str]:
    """Writes the encoder if the source has one; returns its digest as metadata.

    Args:
        states: of the generator before the table of each feature; none if ids are not extended.
    """
    job = writer.job
    origin, target = job.input / ENCODER_FOLDER, job.data / ENCODER_FOLDER
    if not origin.is_dir():
        return {}
    shutil.copytree(origin, target, dirs_exist_ok=True)
    content = folder.read(origin, has_values=False)
    if not states and not job.takes_modulo:
        return {ENCODER_FOLDER: content.digest}
    places = {name: i for i, name in enumerate(writer.source.categorical)}
    features = []
    for encoding in content.features:
        if isinstance(encoding, IdEncoding) and encoding.name in places:
            feature = places[encoding.name]
            width = job.hotness[feature] - 1
            state = states[feature] if states else None
            shape = (job.cardinalities[feature], width, distribution, state)
            encoding = replace(
                encoding,
                hotness=1 + width,
                dtype=writer.dtype(feature).name,
                extension=Extension(*shape),
            )
        features.append(encoding)
    digest = folder.complete(target, features, content.missing_values, content.profile)
    return {ENCODER_FOLDER: digest}


def encoder_files(data: Path) -> list[Path]:
    """Returns the files of the encoder in a data set, relative to it."""
    paths = (data / ENCODER_FOLDER).rglob("*")
    return [path.relative_to(data) for path in paths if path.is_file()]
