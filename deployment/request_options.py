"""Flags of the rows that are sent to a served model."""

from dataclasses import dataclass

from config.command import CommandOptions
from config.flag import flag, recipe_flag


@dataclass(frozen=True, kw_only=True)
class RequestOptions(CommandOptions):
    """Data set whose rows are sent: see `deployment.model.evaluated_samples.described`."""

    checkpoint_dir: str | None = flag(
        None, "deployed checkpoint, whose data set is sent", metavar="PATH"
    )
    dataset_path: str | None = flag(
        None,
        "folder of the data set, if it is not that of the training; of DLRM and DCNv2 also without "
        "--checkpoint_dir",
        metavar="DIR",
    )
    recipe: str | None = recipe_flag()
    feature_spec: str | None = flag(
        None, "its specification, without a checkpoint (feature_spec.yaml)", metavar="FILE"
    )
    dataset_type: str | None = flag(
        None,
        "its format, without a checkpoint (tf_raw)",
        choices=("tf_raw", "synthetic", "split_tfrecords"),
    )
    wait_s: float = flag(0.0, "seconds to wait for server and models", at_least=0)
    fused_embedding: bool = flag(
        False, "all tables are one; only for a model of HPS that NVIDIA's tools deployed"
    )
