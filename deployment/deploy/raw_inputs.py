"""Encoder of a deployment, and the columns of raw requests."""

from deployment.deploy.deploy_options import ENCODED, NVIDIA, RAW, DeployOptions
from deployment.model.trained_model import DCNV2, DLRM, TrainedModel
from deployment.serving.interface import UNKNOWN_IS_ZERO, Interface, answered
from deployment.serving.raw.columns import check_encoder, raw_columns
from preproc.encoding.encoder import Encoder

_ENCODED = "use --inputs encoded"


def with_encoder(interface: Interface, options: DeployOptions, trained: TrainedModel) -> Interface:
    """Returns the interface with the digest of the encoder, and with columns if requests have raw
    rows.

    Raises:
        ValueError: the model cannot take raw rows, and the flags request it.
    """
    folder = trained.encoder_folder
    is_explicit = options.inputs == RAW
    problem = ""
    if folder is None:
        problem = f"the data set of {trained.path} has no encoder"
    elif trained.recipe not in (DLRM, DCNV2):
        problem = f"expected a checkpoint of {DLRM} or {DCNV2}, got one of {trained.recipe}"
    elif any(feature.padded for feature in interface.features):
        problem = "expected the same number of ids in each row, got rows of split TFRecords"
    if problem and is_explicit:
        raise ValueError(f"--inputs raw: {problem}: {_ENCODED}")
    if folder is None:
        return interface
    encoder = Encoder.load(folder)
    check_encoder(encoder, interface)
    interface = interface._replace(encoder=encoder.digest)
    if problem or options.inputs == ENCODED or options.tensors == NVIDIA:
        return interface
    if options.unknown_ids == UNKNOWN_IS_ZERO:
        raise ValueError(
            "--unknown_ids zero: expected a model of encoded requests, got one of raw rows, whose "
            f"unknown values the encoder maps as in training: leave the flag out, or {_ENCODED}"
        )
    columns = raw_columns(encoder, interface)
    names = {tensor.name for tensor in answered(interface)}
    for column in columns:
        if column.name in names:
            raise ValueError(
                f"--inputs raw: expected other columns than the answer '{column.name}', got a "
                f"column of this name: rename it and prepare the data again, or {_ENCODED}"
            )
    return interface._replace(columns=columns)
