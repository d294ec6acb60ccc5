"""Random valid requests of a model."""

import numpy as np

from deployment.serving.interface import Interface


def drawn_request(model: Interface, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws a request with normal numerical features and uniform ids.

    Lengths of histories are uniform, too; those of the first row are empty.

    Returns:
        Tensors by name, [rows, *dims] each.
    """
    arrays = {}
    for tensor in model.inputs:
        is_history = tensor.name in model.histories
        features = [feature for feature in model.features if feature.input == tensor.name]
        values = np.zeros((rows, int(np.prod(tensor.dims))), tensor.dtype)
        for feature in features:
            shape = rows, feature.count
            if feature.cardinality is None:
                drawn = rng.standard_normal(shape)
            else:
                # In histories 0 is padding; a feature without other ids stays 0.
                first = min(int(is_history), feature.cardinality - 1)
                drawn = rng.integers(first, feature.cardinality, shape)
            values[:, feature.start : feature.start + feature.count] = drawn
        arrays[tensor.name] = values.reshape(rows, *tensor.dims)
        if is_history:
            steps = tensor.dims[1]
            has_events = all(feature.cardinality > 1 for feature in features)
            lengths = rng.integers(0, steps * has_events, rows, endpoint=True)
            lengths[0] = 0
            padding = np.arange(steps) < steps - lengths[:, np.newaxis]
            arrays[tensor.name][np.broadcast_to(padding[:, np.newaxis], (rows, *tensor.dims))] = 0
    return arrays
