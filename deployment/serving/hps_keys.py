"""From a request to the keys that Merlin's HPS is asked for; the role `KEYS`."""

from collections.abc import Mapping

import numpy as np

from deployment.serving.interface import Interface, LookUp, Tensor

ROLE = "keys"  # of a model's interface, beside those that `deployment.serving.interface` has

KEYS, NUM_KEYS, VECTORS = "KEYS", "NUMKEYS", "OUTPUT0"  # HPS's own names of its tensors


def asked(interface: Interface) -> tuple[Tensor, Tensor]:
    """KEYS and NUMKEYS without their first dimension, which is 1."""
    tables = len(interface.tables)
    return Tensor(KEYS, "int64", (-1,)), Tensor(NUM_KEYS, "int32", (tables,))


def values_of_a_row(interface: Interface) -> int:
    """Values that HPS returns for a row of a request."""
    dims = {table.name: table.dim for table in interface.tables}
    return sum(look_up.count * dims[look_up.table] for look_up in interface.lookups)


def in_order(interface: Interface) -> list[LookUp]:
    """The look-ups in the order of their vectors: by table, those of one table as they are."""
    numbers = {table.name: number for number, table in enumerate(interface.tables)}
    return sorted(interface.lookups, key=lambda look_up: numbers[look_up.table])


def keys_of_a_row(interface: Interface) -> dict[str, int]:
    """How many keys a row of a request asks of each table, by its name."""
    keys = dict.fromkeys((table.name for table in interface.tables), 0)
    for look_up in interface.lookups:
        keys[look_up.table] += look_up.count
    return keys


def keys_of(
    interface: Interface, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """KEYS int64 [1, all keys] and NUMKEYS int32 [1, tables] of a checked request.

    Look-up by look-up in the order of `in_order`, and in each row by row. The -1 of "no id here"
    becomes the key behind the table's last row, which has zeros
    (`deployment.triton.hps.files.write_tables`).
    """
    rows = {table.name: table.rows for table in interface.tables}
    keys = []
    for look_up in in_order(interface):
        values = arrays[look_up.input]
        ids = values.reshape(len(values), -1)[:, look_up.start : look_up.start + look_up.count]
        ids = ids.astype(np.int64).ravel()
        keys.append(np.where(ids < 0, rows[look_up.table], ids))
    batch = len(arrays[interface.lookups[0].input])
    counts = [count * batch for count in keys_of_a_row(interface).values()]
    return np.concatenate(keys)[None], np.array([counts], np.int32)


def answered(interface: Interface) -> tuple[Tensor, ...]:
    """What a model of the role answers: what HPS is asked for, and what the dense part reads."""
    return (*asked(interface), *(t for t in interface.inputs if t.name in interface.dense_inputs))


def answer(interface: Interface, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors `answered` of a checked request."""
    keys, counts = keys_of(interface, arrays)
    return {KEYS: keys, NUM_KEYS: counts} | {name: arrays[name] for name in interface.dense_inputs}
