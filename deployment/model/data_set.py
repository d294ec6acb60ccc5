"""Samples of DLRM and DCNv2 without a checkpoint, to evaluate a model that is served."""

from pathlib import Path

from config import Config
from deployment.model.trained_model import DLRM, TrainedModel
from recipes import ctr
from recipes.from_flags import load_feature_spec


def data_without_checkpoint(
    dataset_path: str, feature_spec: str = "feature_spec.yaml", dataset_type: str = "tf_raw"
) -> TrainedModel:
    """Describes a data set, a folder with a feature spec, as that of a model without weights.

    Raises:
        ValueError: the specification does not exist, or is not of clicks.
    """
    config = Config(DLRM).replace(
        mode="eval",
        restore_checkpoint_path=dataset_path,  # the mode needs one, which nothing reads here
        dataset_path=dataset_path,
        feature_spec=feature_spec,
        dataset_type=dataset_type,
        synthetic_dataset_use_feature_spec=dataset_type == "synthetic",
    )
    raw = load_feature_spec(config)
    spec = ctr.spec_of_data(config, raw)
    if "categorical" not in spec.channel_spec and "numerical" not in spec.channel_spec:
        raise ValueError(
            f"--dataset_path {dataset_path}: expected the features of DLRM and DCNv2 (channels "
            f"numerical and categorical), got {', '.join(spec.channel_spec)}: give --checkpoint_dir"
        )
    shape = ctr.model_config(config, spec)
    return TrainedModel(Path(dataset_path), None, config, spec, shape)
