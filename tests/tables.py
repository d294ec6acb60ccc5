"""Tables for tests."""

import numpy as np

from runtime.checkpoint import describe, resolve
from runtime.checkpoint.reader import rows_of


def arrays_of(folder):
    """{name: whole array as a matrix} of the newest checkpoint in a folder, whatever its parts."""
    path = resolve(folder)
    entries = describe(path).weights.items()
    return {name: np.concatenate([*rows_of(path, entry)]) for name, entry in entries}


def check_same_arrays(one, other):
    """The newest checkpoints of two folders have equal arrays."""
    first, second = arrays_of(one), arrays_of(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
