"""Keys that a request asks of Merlin's HPS."""

from collections.abc import Mapping

import numpy as np

from deployment.serving.interface import Interface, ServedLookup, ServedTable, ServedTensor

KEYS, NUM_KEYS, VECTORS = "KEYS", "NUMKEYS", "OUTPUT0"  # tensor names that HPS prescribes
# KEYS and NUMKEYS as clients of NVIDIA's deployment send them.
SENT_KEYS, SENT_NUM_KEYS = "EMB_KEY", "EMB_N_KEY"

# Parameter of the ensemble's configuration, for clients, and its values.
TABLES, FUSED, SEPARATE = "embedding_tables", "fused", "separate"


def request_tensors(interface: Interface) -> tuple[ServedTensor, ServedTensor]:
    """Returns KEYS and NUMKEYS without their first dimension, which is 1."""
    num_tables = len(interface.tables)
    return ServedTensor(KEYS, "int64", (-1,)), ServedTensor(NUM_KEYS, "int32", (num_tables,))


def answer_tensors(interface: Interface) -> tuple[ServedTensor, ...]:
    """Returns the tensors of `answer`: keys, and the inputs of the dense part."""
    dense = (tensor for tensor in interface.inputs if tensor.name in interface.dense_inputs)
    return (*request_tensors(interface), *dense)


def answer(interface: Interface, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the tensors `answer_tensors` of a checked request."""
    keys, counts = keys_of(interface, arrays)
    return {KEYS: keys, NUM_KEYS: counts} | {name: arrays[name] for name in interface.dense_inputs}


def fused(interface: Interface) -> Interface:
    """Returns the interface with all tables as one, whose rows are those of the first table, then
    those of the second, and so on.

    Raises:
        ValueError: tables differ in width.
    """
    dims = sorted({table.dim for table in interface.tables})
    if len(dims) > 1:
        raise ValueError(
            "--fused_embedding: expected tables of one width, got the widths "
            f"{', '.join(map(str, dims))}: leave the flag out"
        )
    rows = sum(table.rows for table in interface.tables)
    table = ServedTable(FUSED, rows, dims[0], "float32", "")
    lookups = tuple(lookup._replace(table=FUSED) for lookup in lookups_by_table(interface))
    return interface._replace(tables=(table,), lookups=lookups)


def keys_of(
    interface: Interface, arrays: Mapping[str, np.ndarray], is_fused: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Computes KEYS int64 [1, all keys] and NUMKEYS int32 [1, tables] of a checked request.

    Keys are ordered as `lookups_by_table`, and row by row within a lookup. Padding (-1) becomes the
    key after the last row of the table, whose vector is zeros (`hps_files.write_tables`). With
    `is_fused` the keys are rows of the one table of `fused`; `interface` has the separate tables.
    """
    if is_fused:
        first_rows = np.cumsum([0, *(table.rows for table in interface.tables)])
        names = [table.name for table in interface.tables]
        first_row = dict(zip(names, first_rows.tolist(), strict=False))
        num_rows = dict.fromkeys(names, int(first_rows[-1]))
    else:
        first_row = dict.fromkeys((table.name for table in interface.tables), 0)
        num_rows = {table.name: table.rows for table in interface.tables}
    keys = []
    for lookup in lookups_by_table(interface):
        values = arrays[lookup.input]
        ids = values.reshape(len(values), -1)[:, lookup.start : lookup.start + lookup.count]
        ids = ids.astype(np.int64).ravel()
        keys.append(np.where(ids < 0, num_rows[lookup.table], ids + first_row[lookup.table]))
    batch = len(arrays[interface.lookups[0].input])
    counts = [count * batch for count in keys_per_row(interface).values()]
    if is_fused:
        counts = [sum(counts)]
    return np.concatenate(keys)[None], np.array([counts], np.int32)


def lookups_by_table(interface: Interface) -> list[ServedLookup]:
    """Returns the lookups in the order of their vectors: by table, stable within a table."""
    numbers = {table.name: number for number, table in enumerate(interface.tables)}
    return sorted(interface.lookups, key=lambda lookup: numbers[lookup.table])


def keys_per_row(interface: Interface) -> dict[str, int]:
    """Returns the number of keys per row of a request, by table name."""
    counts = dict.fromkeys((table.name for table in interface.tables), 0)
    for lookup in interface.lookups:
        counts[lookup.table] += lookup.count
    return counts


def values_per_row(interface: Interface) -> int:
    """Returns the number of values that HPS answers per row of a request."""
    keys = keys_per_row(interface)
    return sum(keys[table.name] * table.dim for table in interface.tables)
