"""Samples to evaluate a model that is served; of DLRM and DCNv2 also without a checkpoint."""

from pathlib import Path

from config.config import Config
from deployment.model.trained_model import TrainedModel, open_checkpoint
from deployment.request_options import RequestOptions
from recipes.from_flags import load_feature_spec
from recipes.registry import DLRM


def described(flags: RequestOptions) -> TrainedModel:
    """Describes the data set of a command.

    Without a checkpoint it is a folder with a feature spec, as that of a model without weights.

    Raises:
        ValueError: the checkpoint or the specification does not exist, or is not of clicks.
    """
    if flags.checkpoint_dir is not None:
        return open_checkpoint(flags.checkpoint_dir, flags.dataset_path, flags.recipe)
    dataset_path, dataset_type = flags.dataset_path, flags.dataset_type or "tf_raw"
    config = Config(DLRM).replace(
        mode="eval",
        restore_checkpoint_path=dataset_path,  # the mode needs one, which nothing reads here
        dataset_path=dataset_path,
        feature_spec=flags.feature_spec or "feature_spec.yaml",
        dataset_type=dataset_type,
        synthetic_dataset_use_feature_spec=dataset_type == "synthetic",
    )
    raw = load_feature_spec(config)
    spec = DLRM.family.spec_of_data(config, raw)
    if "categorical" not in spec.channel_spec and "numerical" not in spec.channel_spec:
        raise ValueError(
            f"--dataset_path {dataset_path}: expected the features of DLRM and DCNv2 (channels "
            f"numerical and categorical), got {', '.join(spec.channel_spec)}: give --checkpoint_dir"
        )
    shape = DLRM.family.model_config(config, spec)
    return TrainedModel(Path(dataset_path), None, config, spec, shape)
