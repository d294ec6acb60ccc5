"""Checkpoints in the layout of NVIDIA's DLRM and DCNv2, written here by Keras as there."""

import json

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras

import dcnv2
import dlrm
from dataloading.spec.feature_spec import FeatureSpec
from runtime.checkpoint import __main__ as checkpoint_tool
from runtime.checkpoint.files import Index
from runtime.checkpoint.nvidia import ctr_layout
from tests.recipes.test_entry_scripts import in_process
from tests.tables import arrays_of

BOTTOM, TOP, RANK = (16, 8), (12, 1), 3


class Cross(keras.layers.Layer):
    """A low-rank cross layer with the original's attributes."""

    def __init__(self, width):
        super().__init__()
        self._dense_u = keras.layers.Dense(RANK, use_bias=False)
        self._dense_v = keras.layers.Dense(width)
        self._dense_v(self._dense_u(tf.zeros([1, width])))


class CrossNetwork(tf.Module):
    """Cross layers with the original's attributes."""

    def __init__(self, width):
        super().__init__()
        self.cross_layers = [Cross(width) for _ in range(2)]


class OriginalDense(keras.Model):
    """The dense weights with the original's attributes, and the model in NumPy."""

    def __init__(self, num_numerical, num_tables, interaction):
        super().__init__()
        self.bottom_mlp_layers = [keras.layers.Dense(n, bias_initializer="normal") for n in BOTTOM]
        self.top_mlp = [keras.layers.Dense(n, bias_initializer="normal") for n in TOP]
        width = BOTTOM[-1] * (num_tables + 1)
        if interaction == "cross":
            self.interact_op = CrossNetwork(width)
        else:
            width = BOTTOM[-1] + num_tables * (num_tables + 1) // 2
        for layers, inputs in ((self.bottom_mlp_layers, num_numerical), (self.top_mlp, width)):
            features = tf.zeros([1, -(-inputs // 8) * 8])  # padded, as there
            for layer in layers:
                features = layer(features)

    def scores(self, numerical, embeddings):
        """Returns logits [batch] of numerical [batch, n] and embeddings [batch, tables, dim]."""

        def mlp(layers, x):
            x = np.pad(x, [(0, 0), (0, layers[0].kernel.shape[0] - x.shape[1])])
            for layer in layers:
                x = x @ layer.kernel.numpy() + layer.bias.numpy()
                x = x if layer is layers[-1] and layer.units == 1 else np.maximum(x, 0)
            return x

        bottom = mlp(self.bottom_mlp_layers, numerical)
        features = np.concatenate([bottom[:, None], embeddings], axis=1)
        if hasattr(self, "interact_op"):
            x0 = x = features.reshape(len(features), -1)
            for cross in self.interact_op.cross_layers:
                u, v = cross._dense_u, cross._dense_v
                x = x0 * (x @ u.kernel.numpy() @ v.kernel.numpy() + v.bias.numpy()) + x
        else:
            rows, columns = np.tril_indices(features.shape[1], -1)
            products = features @ features.transpose(0, 2, 1)
            x = np.concatenate([bottom, products[:, rows, columns]], axis=1)
        return mlp(self.top_mlp, x)[:, 0]


def write_original(folder, spec):
    """Writes a checkpoint of DLRM as the original does; returns its dense model."""
    interaction = "dot_custom_cuda"
    cardinalities = spec.cardinalities("categorical")
    num_numerical = len(spec.channel("numerical"))
    generator = np.random.default_rng(5)
    tables = [generator.normal(size=[n, BOTTOM[-1]]).astype(np.float32) for n in cardinalities]
    dense = OriginalDense(num_numerical, len(tables), interaction)
    dims = [BOTTOM[-1]] * len(tables)
    shared = {"embedding_dim": dims, "categorical_cardinalities": cardinalities}
    (folder / "dense").mkdir(parents=True)
    (folder / "sparse").mkdir()
    config = {"interaction": interaction, "bottom_mlp_dims": BOTTOM, "top_mlp_dims": TOP, **shared}
    config |= {"num_numerical_features": num_numerical, "transpose": False, "batch_size": 64}
    config |= {"num_cross_layers": 2, "cross_layer_projection_dim": RANK}
    (folder / "dense/config.json").write_text(json.dumps(config))
    dense.save_weights(folder / "dense/dense", save_format="tf")
    (folder / "sparse/config.json").write_text(json.dumps({"use_mde_embeddings": False, **shared}))
    for i, table in enumerate(tables):
        np.save(folder / f"sparse/feature_{i}.npy", table)
    return dense


def read_rows(spec, split):
    """Returns numerical features and ids of a split."""
    num_rows = spec.num_samples(split)
    features = {}
    for chunk in spec.source_spec[split]:
        values = np.fromfile(spec.base_directory / chunk.files[0], spec.dtype(chunk.features[0]))
        features |= dict(zip(chunk.features, values.reshape(num_rows, -1).T, strict=True))
    numerical = np.stack([features[name] for name in spec.channel("numerical")], 1)
    ids = np.stack([features[name] for name in spec.channel("categorical")], 1)
    return numerical.astype(np.float32), ids


def expected_scores(spec, dense, tables):
    """Returns probabilities of the test rows, [rows]."""
    numerical, ids = read_rows(spec, "test")
    embeddings = np.stack([table[ids[:, i]] for i, table in enumerate(tables)], 1)
    return 1 / (1 + np.exp(-dense.scores(numerical, embeddings)))


@pytest.mark.parametrize(("recipe", "interaction"), [(dlrm, "dot_custom_cuda"), (dcnv2, "cross")])
def test_export(tiny, tmp_path, recipe, interaction, capsys):
    """The exported model has the scores of the original's formulas, and is restored here."""
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    model, original = tmp_path / "model", tmp_path / "original"
    flags = ["--preset=terabyte", "--embedding_dim=8", "--bottom_mlp_dims=16,8"]
    flags += ["--top_mlp_dims=12,1", "--batch_size=256", "--learning_rate=0.1", "--seed=1"]
    if recipe is dcnv2:
        flags += ["--num_cross_layers=2", f"--cross_layer_projection_dim={RANK}"]
    data = f"--dataset_path={tiny}"
    code, _ = in_process(
        tmp_path / "run", data, *flags, f"--save_checkpoint_path={model}", recipe=recipe
    )
    assert code == 0
    arguments = ["export", str(model), "--output", str(original), "--format", "nvidia"]
    assert checkpoint_tool.main(arguments) == 0
    config = json.loads((original / "dense/config.json").read_text())
    assert config["interaction"] == interaction
    assert config["num_numerical_features"] == len(spec.channel("numerical"))
    cardinalities = config["categorical_cardinalities"]
    dense = OriginalDense(config["num_numerical_features"], len(cardinalities), interaction)
    dense.load_weights(original / "dense/dense").assert_existing_objects_matched()
    files = [original / f"sparse/feature_{i}.npy" for i in range(len(cardinalities))]
    tables = [np.load(file) for file in files]
    assert [len(table) for table in tables] == cardinalities
    predict = [data, "--mode=predict", "--eval_mapping=test"]
    for number, folder in enumerate((model, original)):
        path = tmp_path / f"{number}.npy"
        last = [f"--restore_checkpoint_path={folder}", f"--predictions_path={path}"]
        assert in_process(tmp_path / f"run{number}", *predict, *last, recipe=recipe)[0] == 0
        np.testing.assert_allclose(np.load(path), expected_scores(spec, dense, tables), rtol=2e-5)


def test_export_of_another_model(tmp_path, capsys):
    with pytest.raises(ValueError, match="expected a checkpoint of dlrm.py or dcnv2.py, got one"):
        ctr_layout.write(tmp_path, Index({"recipe": "sim", "model_flags": {}}, {}, {}, {}), {})


def test_training_from_a_whole_checkpoint(tiny, tmp_path, capsys):
    """The first step starts from its MLPs, not from random ones."""
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    dense = write_original(tmp_path / "original", spec)
    flags = [f"--dataset_path={tiny}", f"--restore_checkpoint_path={tmp_path / 'original'}"]
    flags += ["--learning_rate=1e-30", "--batch_size=256"]
    flags.append(f"--save_checkpoint_path={tmp_path / 'm'}")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert "(NVIDIA's layout)" in capsys.readouterr().out
    arrays = arrays_of(tmp_path / "m")
    for name, layers in (("bottom_mlp", dense.bottom_mlp_layers), ("top_mlp", dense.top_mlp)):
        for i, layer in enumerate(layers):
            kernel = arrays[f"dense/{name}.dense_{i}.kernel"]
            np.testing.assert_array_equal(kernel, layer.kernel[: len(kernel)])
            bias = arrays[f"dense/{name}.dense_{i}.bias"].ravel()
            np.testing.assert_array_equal(bias, layer.bias)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("--top_mlp_dims=7,1", "--top_mlp_dims"),  # on the command line
        (lambda d: (d / "dense.index").unlink(), "expected weights of Keras named dense.*"),
        (lambda d: (d / "config.json").write_text("{}"), "is not what NVIDIA's recipe saves"),
        (lambda d: changed(d, top_mlp_dims=[12, 3, 1]), "it lacks dense/top_mlp.dense_2.bias"),
        (lambda d: changed(d, top_mlp_dims=[13, 1]), "is [16, 12], the model needs [16, 13]"),
    ],
)
def test_damages(tiny, tmp_path, damage, message, capsys):
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    write_original(tmp_path, spec)
    flags = [f"--dataset_path={tiny}", f"--restore_checkpoint_path={tmp_path}", "--mode=eval"]
    if isinstance(damage, str):
        flags.append(damage)
    else:
        damage(tmp_path / "dense")
    assert in_process(tmp_path / "run", *flags)[0] == 2
    assert message in capsys.readouterr().err


def changed(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))
