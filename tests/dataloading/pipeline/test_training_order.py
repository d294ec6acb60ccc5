"""The order in which recipes read the training samples: shuffled, unless --noshuffle."""

import numpy as np
import pytest
from distributed_embeddings.collectives import World

from config.command_line import parse
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from dataloading.transcribe import main as transcribe
from recipes.registry import DLRM, SIM
from tests import sequence_data

NUM_SAMPLES = 60


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data_sets")
    rows = {"train": NUM_SAMPLES, "test": NUM_SAMPLES}
    write_dataset(folder / "tf_raw", synthetic_spec([10**6], 1, num_numerical=1), rows)
    flags = {"src_dataset_path": folder / "tf_raw", "src_dataset_type": "tf_raw"}
    flags |= {"dst_dataset_path": folder / "split_tfrecords", "dst_dataset_type": "split_tfrecords"}
    assert transcribe([f"--{name}={value}" for name, value in flags.items()]) == 0
    sequence_data.write(folder / "histories", NUM_SAMPLES)
    return folder


@pytest.mark.parametrize("data_set", ["tf_raw", "split_tfrecords", "histories"])
def test_default_order_of_training_samples(data_sets, data_set):
    folder = data_sets / data_set
    train, evaluated = opened(folder, data_set)
    in_file_order, _ = opened(folder, data_set, "--noshuffle")
    stored = samples(in_file_order, epoch=0)
    first, second = samples(train, epoch=0), samples(train, epoch=1)
    assert stored == samples(in_file_order, epoch=1)
    assert sorted(first) == sorted(second) == sorted(stored)
    assert first != stored and second != stored and first != second
    assert samples(evaluated, epoch=0) == samples(evaluated, epoch=1)


def opened(folder, data_set, *flags):
    command_line = ["prog", f"--dataset_path={folder}", f"--batch_size={NUM_SAMPLES}"]
    command_line += ["--seed=1", *flags]
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    if data_set == "histories":
        config = parse(command_line, SIM)
        train, evaluated, _ = SIM.family.open_data(config, spec, World())
    else:
        config = parse([*command_line, f"--dataset_type={data_set}"], DLRM)
        train, evaluated = DLRM.family.open_data(config, spec, World())
    return train, evaluated


def samples(loader, epoch):
    """The ids of each sample, in the order of an epoch of one batch."""
    (batch,) = loader.dataset(epoch)
    inputs = batch.inputs
    features = inputs.categorical if hasattr(inputs, "categorical") else inputs.user + inputs.target
    return np.concatenate([np.array(ids) for ids in features], axis=1).tolist()
