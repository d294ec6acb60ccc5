"""Checkpoints of NVIDIA's DLRM and DCNv2 (2023).

`sparse/feature_{i}.npy` is table number i, `dense/dense.*` is what Keras's `save_weights` writes;
`config.json` of both folders has the arguments of the models.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint import files

CONFIG = Path("dense", "config.json")  # of a folder that has dense weights
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Names there, as patterns, and ours.
_NAMES = (
    (r"bottom_mlp_layers/(\d+)/(kernel|bias)", r"dense/bottom_mlp.dense_\1.\2"),
    (r"top_mlp/(\d+)/(kernel|bias)", r"dense/top_mlp.dense_\1.\2"),
    (r"interact_op/cross_layers/(\d+)/_dense_u/kernel", r"dense/cross.down_\1.kernel"),
    (r"interact_op/cross_layers/(\d+)/_dense_v/(kernel|bias)", r"dense/cross.up_\1.\2"),
)
# Arguments of the original's models that a checkpoint of ours does not have: its defaults.
_DENSE_DEFAULTS = {"transpose": False, "batch_size": 65536}
_SPARSE_DEFAULTS = {
    "use_mde_embeddings": True,
    "column_slice_threshold": 5_000_000_000,
    "embedding_zeros_initializer": False,
    "embedding_trainable": True,
    "concat_embedding": False,
    "cpu_offloading_threshold_gb": 75,
}
# Flags of a model that this layout can store; others have weights that NVIDIA's model lacks.
_WITHOUT_PARTS = {"numerical_embedding": "none", "wide": False}
# Their inputs are padded there with zeros, to a multiple of 8.
_PADDED = ("dense/bottom_mlp.dense_0.kernel", "dense/top_mlp.dense_0.kernel")


def read_dense_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Returns the dense weights of a folder in this layout, by our names.

    Raises:
        ValueError: the weights of Keras are missing or damaged.
    """
    import tensorflow as tf

    folder = path / "dense"
    try:
        stored = tf.train.load_checkpoint(str(folder / "dense"))
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"{folder}: expected weights of Keras named dense.*: {error}") from None
    weights = {}
    for key in stored.get_variable_to_shape_map():
        for pattern, name in _NAMES:
            if match := re.fullmatch(pattern, key.removesuffix(_VALUE)):
                weights[match.expand(name)] = stored.get_tensor(key)
    return weights


def checked(
    folder: Path, weights: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields name and values of each dense weight, without the padding of first layers.

    Args:
        folder: For messages.
        weights: By our names, as stored.
        shapes: Names of the model's dense weights, and their shapes.

    Raises:
        ValueError: A weight is missing, has another shape, or is not finite; the model has others.
    """
    if weights.keys() != shapes.keys():
        missing = ", ".join(sorted(shapes.keys() - weights.keys())) or "nothing"
        extra = ", ".join(sorted(weights.keys() - shapes.keys())) or "nothing"
        raise ValueError(
            f"{folder} is of another model: it lacks {missing:.200} and has {extra:.200} too many"
        )
    for name, shape in shapes.items():
        values = weights[name]
        surplus = len(values) - shape[0]
        if name in _PADDED and 0 <= surplus < 8:
            values = values[: shape[0]]
        if values.shape != shape:
            raise ValueError(
                f"{folder}: {name} is {list(values.shape)}, the model needs {list(shape)}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{folder}: {name} is not finite")
        yield name, values.astype(np.float32)


def write(
    folder: Path, index: files.Index, values: Mapping[str, Iterator[NDArray[Any]]]
) -> list[str]:
    """Writes a checkpoint of ours in this layout; NVIDIA's recipe restores it.

    Args:
        folder: Empty folder.
        values: Name -> its values as matrices, some rows at a time.

    Returns:
        The names of the weights.

    Raises:
        ValueError: The checkpoint is of another model than DLRM and DCNv2.
    """
    recipe, flags = index.description.get("recipe"), index.description["model_flags"]
    if "interaction" not in flags:
        raise ValueError(f"expected a checkpoint of dlrm.py or dcnv2.py, got one of {recipe}")
    parts = [name for name, value in _WITHOUT_PARTS.items() if flags.get(name, value) != value]
    entries = index.weights
    if "dense/constant" in entries:
        parts.append("variant")
    if parts:
        raise ValueError(
            "NVIDIA's models have no parts of "
            + ", ".join(f"--{name} {flags[name]}" for name in parts)
            + ": train without them (--variant nvidia)"
        )
    tables = [name for name in entries if name.startswith("sparse/")]
    dense = {
        name: np.concatenate(list(values[name])).reshape(entries[name].shape)
        for name in entries
        if name.startswith("dense/")
    }
    numerical = dense.get("dense/bottom_mlp.dense_0.kernel")
    shared = {
        "embedding_dim": [entries[name].shape[1] for name in tables],
        "categorical_cardinalities": [entries[name].shape[0] for name in tables],
    }
    is_cross = flags["interaction"] == "cross"
    model = {
        **{name: list(flags[name]) for name in ("bottom_mlp_dims", "top_mlp_dims")},
        **{name: flags[name] for name in ("num_cross_layers", "cross_layer_projection_dim")},
        "interaction": "cross" if is_cross else "dot_custom_cuda",
        "num_numerical_features": 0 if numerical is None else len(numerical),
    }
    for name, config in (
        ("dense", {**model, **_DENSE_DEFAULTS, **shared}),
        ("sparse", {**_SPARSE_DEFAULTS, **shared}),
    ):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config, indent=4))
    for number, name in enumerate(tables):
        file = folder / f"sparse/feature_{number}.npy"
        files.write_npy(file, entries[name], values[name])
    _write_dense_weights(folder / "dense/dense", dense)
    return [*dense, *tables]


def _write_dense_weights(prefix: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    import tensorflow as tf

    def layer(kernel: str, bias: str = "") -> Any:
        values = weights[kernel]
        if kernel in _PADDED:
            values = np.pad(values, [(0, -len(values) % 8), (0, 0)])
        variables = {"kernel": tf.Variable(values)}
        if bias:
            variables["bias"] = tf.Variable(weights[bias])
        return tf.train.Checkpoint(**variables)

    def count(pattern: str) -> int:
        return sum(bool(re.fullmatch(pattern, name)) for name in weights)

    def mlp(name: str) -> list[Any]:
        names = [f"dense/{name}.dense_{i}" for i in range(count(rf"dense/{name}\.dense_\d+\.bias"))]
        return [layer(f"{part}.kernel", f"{part}.bias") for part in names]

    root = {"bottom_mlp_layers": mlp("bottom_mlp"), "top_mlp": mlp("top_mlp")}
    if num_layers := count(r"dense/cross\.up_\d+\.bias"):
        crosses = [
            tf.train.Checkpoint(
                _dense_u=layer(f"dense/cross.down_{i}.kernel"),
                _dense_v=layer(f"dense/cross.up_{i}.kernel", f"dense/cross.up_{i}.bias"),
            )
            for i in range(num_layers)
        ]
        root["interact_op"] = tf.train.Checkpoint(cross_layers=crosses)
    tf.train.Checkpoint(**root).write(str(prefix))
