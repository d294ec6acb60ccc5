"""Encoder of a deployment, and the columns of raw requests."""

import dataclasses
import shutil
from collections import Counter
from pathlib import Path

from deployment.deploy.deploy_options import ENCODED, NVIDIA, RAW, DeployOptions
from deployment.model.trained_model import TrainedModel
from deployment.serving.interface import RECOMMENDER, UNKNOWN_IS_ZERO, Interface, answered
from deployment.serving.raw.input_columns import (
    check_encoder,
    item_encoding,
    items_dtype,
    lacking,
    raw_columns,
)
from preproc.encoding.encoder import Encoder
from preproc.encoding.numbers import fill_value, filled, unfilled

_ENCODED = "use --inputs encoded"


def with_encoder(interface: Interface, options: DeployOptions, trained: TrainedModel) -> Interface:
    """Returns the interface with the digest of the encoder, and with columns if requests have raw
    rows.

    Raises:
        ValueError: the model cannot take raw rows, and the flags request it.
    """
    folder = trained.encoder_folder
    encoder = None if folder is None else _with_fill(Encoder.load(folder), options)
    problem = _problem(encoder, interface, trained)
    if problem and options.inputs == RAW:
        raise ValueError(f"--inputs raw: {problem}, or {_ENCODED}")
    is_encoded = problem or options.inputs == ENCODED or options.tensors == NVIDIA
    if is_encoded and options.fill_missing is not None:
        raise ValueError(
            "--fill_missing: expected a model of raw requests, got one of encoded requests, which "
            f"hold no missing values: leave the flag out{f' ({problem})' if problem else ''}"
        )
    if encoder is None or lacking(encoder, interface):
        return interface
    check_encoder(encoder, interface)
    interface = interface._replace(encoder=encoder.digest)
    if is_encoded:
        return interface
    if options.unknown_ids == UNKNOWN_IS_ZERO:
        raise ValueError(
            "--unknown_ids zero: expected a model of encoded requests, got one of raw rows, whose "
            f"unknown values the encoder maps as in training: leave the flag out, or {_ENCODED}"
        )
    if interface.candidate_input:
        interface = interface._replace(items=items_dtype(item_encoding(encoder, interface)))
    columns = raw_columns(encoder, interface)
    role = RECOMMENDER if interface.candidate_input else interface.role
    answers = [tensor.name for tensor in answered(interface._replace(role=role))]
    names = Counter([*answers, *(column.name for column in columns)])
    for name, count in names.items():
        if count > 1:
            raise ValueError(
                f"--inputs raw: expected columns and answers of different names, got '{name}' "
                f"twice: rename the column and prepare the data again, or {_ENCODED}"
            )
    return interface._replace(columns=columns)


def _with_fill(encoder: Encoder, options: DeployOptions) -> Encoder:
    """Returns an encoder that fills missing numbers as `--fill_missing` requests."""
    if options.fill_missing is None:
        return encoder
    fills = dict.fromkeys(unfilled(encoder.features), fill_value(options.fill_missing))
    features = filled(encoder.features, fills, encoder.profile, "the training's data set")
    return dataclasses.replace(encoder, features=features)


def save_encoder(folder: Path, trained: TrainedModel, options: DeployOptions) -> None:
    """Writes the encoder of a deployment to a new folder."""
    if options.fill_missing is None:
        shutil.copytree(trained.encoder_folder, folder)
    else:
        _with_fill(Encoder.load(trained.encoder_folder), options).save(folder)


def _problem(encoder: Encoder | None, interface: Interface, trained: TrainedModel) -> str:
    """Returns why a model cannot take raw rows; empty if it can."""
    if encoder is None:
        return f"the data set of {trained.path} has no encoder: prepare the raw data again"
    if missing := lacking(encoder, interface):
        return (
            f"the encoder of the data set of {trained.path} lacks {', '.join(missing)}: prepare "
            "the raw data again"
        )
    if any(feature.padded for feature in interface.features):
        return "expected the same number of ids in each row, got rows of split TFRecords"
    if interface.candidate_input:
        item = item_encoding(encoder, interface)
        if not items_dtype(item):
            return f"feature '{item.name}': expected items of a vocabulary, got {item.kind}"
    return ""
