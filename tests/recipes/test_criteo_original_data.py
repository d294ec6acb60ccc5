"""Criteo data sets in the layout of NVIDIA's split_dataset.py, written here with NumPy and YAML."""

import numpy as np
import pytest
import yaml

from tests.recipes.test_entry_scripts import in_process, lines

ROWS = {"train": 1000, "test": 300, "validation": 200}
CARDINALITIES = [3, 126, 127, 128, 40_000, *[10] * 21]
SMALL = [
    *("--embedding_dim=4", "--bottom_mlp_dims=8,4", "--top_mlp_dims=8,1", "--batch_size=128"),
    *("--valid_batch_size=64", "--seed=1", "--preset=terabyte", "--print_freq=1"),
]


def id_dtype(cardinality):
    """The smallest dtype whose largest value is above the cardinality, as in NVIDIA's script."""
    return next(t for t in (np.int8, np.int16, np.int32) if cardinality < np.iinfo(t).max)


def columns(split):
    """Yields (file, values) of a split: labels that follow from cat_0."""
    generator = np.random.default_rng(len(split))
    numerical = np.log(generator.integers(0, 50, [ROWS[split], 13]) + 3).astype(np.float16)
    yield "numerical", numerical
    for i, cardinality in enumerate(CARDINALITIES):
        ids = generator.integers(0, cardinality, ROWS[split])
        if i == 0:
            yield "label", ids > 0
        yield f"cat_{i}", ids.astype(id_dtype(cardinality))


@pytest.fixture(scope="module")
def criteo(tmp_path_factory):
    """The folder; validation/ has files and is not in the feature spec, as with the script."""
    folder = tmp_path_factory.mktemp("dlrm") / "binary_dataset"
    for split in ROWS:
        (folder / split).mkdir(parents=True)
        for name, values in columns(split):
            values.tofile(folder / split / f"{name}.bin")
    numerical = [f"num_{i}" for i in range(13)]
    categorical = [f"cat_{i}.bin" for i in range(26)]
    features = {
        name: {"dtype": np.dtype(id_dtype(size)).name, "cardinality": size}
        for name, size in zip(categorical, CARDINALITIES, strict=True)
    }
    features |= {name: {"dtype": "float16"} for name in numerical} | {"label": {"dtype": "bool"}}
    spec = {
        "channel_spec": {"categorical": categorical, "label": ["label"], "numerical": numerical},
        "feature_spec": features,
        "metadata": {},
        "source_spec": {
            split: chunks(split, numerical, categorical) for split in ("train", "test")
        },
    }
    (folder / "feature_spec.yaml").write_text(yaml.dump(spec))
    return folder


def chunks(split, numerical, categorical):
    def chunk(features, file):
        return {"features": features, "files": [f"{split}/{file}"], "type": "split_binary"}

    return [
        chunk(numerical, "numerical.bin"),
        chunk(["label"], "label.bin"),
        *(chunk([name], name) for name in categorical),
    ]


def test_training_and_evaluation(criteo, tmp_path):
    """The commands of the documents: the folder above the data set, --amp, then eval."""
    flags = [*SMALL, f"--dataset_path={criteo.parent}/", "--epochs=4", "--amp"]
    flags += ["--optimizer=adam", "--learning_rate=0.02", "--warmup_steps=1"]
    model = f"{tmp_path}/checkpoint"
    code, trained = in_process(tmp_path / "train", *flags, f"--save_checkpoint_path={model}")
    assert code == 0 and trained["auc"] > 0.8
    log = [line for line in lines(tmp_path / "train/log.json") if "loss" in line.get("data", {})]
    numbers = [line["step"][-1] for line in log if line["step"]]
    assert numbers == list(range(1, 33))  # four epochs of ceil(1000 / 128) steps
    flags.append(f"--restore_checkpoint_path={model}")
    code, evaluated = in_process(tmp_path / "eval", *flags, "--mode=eval")
    assert code == 0 and evaluated["auc"] == pytest.approx(trained["auc"], abs=1e-6)
    flags += ["--mode=inference", "--max_steps=3"]
    code, measured = in_process(tmp_path / "inference", *flags)
    assert code == 0 and measured["mean_inference_throughput"] > 0
