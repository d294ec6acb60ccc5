"""Requests of random values, within what a model allows."""

import numpy as np

from deployment.model.serving_spec import ServingSpec
from deployment.serving.interface import Interface


def drawn_request(
    model: ServingSpec | Interface, rows: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A request whose numericals are normal, and whose ids are uniform in their features' ranges.

    Histories have from no events to as many as there are steps, uniformly, and padding in front;
    the first row's are empty.

    Args:
        model: whose inputs, features and histories they are.
        rows: of the request, at least 1.
        rng: draws.

    Returns:
        The tensors by name, [rows, *dims] each.
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
                # Of a history 0 is padding; a feature that has nothing else stays 0.
                least = min(int(is_history), feature.cardinality - 1)
                drawn = rng.integers(least, feature.cardinality, shape)
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
