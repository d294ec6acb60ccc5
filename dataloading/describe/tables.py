"""Embedding tables of a checkpoint: norms of their rows, and ids that no training sample has."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from dataloading.describe.facts import column_blocks
from dataloading.formats.open_chunk import is_readable, open_chunk
from dataloading.formats.sequence_tfrecord.channels import has_histories, num_ids
from dataloading.spec.feature_spec import ITEM_CHANNEL, TRAIN, USER_CHANNEL, FeatureSpec
from runtime import checkpoint
from runtime.checkpoint.reader import rows_of

FLAG = "--checkpoint"
_PREFIX = "sparse/"  # of the weights of tables in a checkpoint


def describe_tables(spec: FeatureSpec, path: Path) -> Iterator[str]:
    """Yields a line on each table of a checkpoint.

    Memory is one byte per id and one block of the checkpoint.

    Args:
        spec: a data set without faults.
        path: a checkpoint, or a folder of them: the best one, else the newest.

    Raises:
        ValueError: there is no checkpoint, it is damaged, has no tables, or has tables of other
            sizes than the data set.
    """
    folder = checkpoint.resolve(checkpoint.best_of(path), FLAG)
    with checkpoint.suggest_previous(folder, FLAG):
        weights = checkpoint.describe(folder).weights
        tables = {n.removeprefix(_PREFIX): e for n, e in weights.items() if n.startswith(_PREFIX)}
        if not tables:
            raise ValueError(
                f"{FLAG} {path}: expected a checkpoint with embedding tables, got one without; a "
                "checkpoint in NVIDIA's layout is not described"
            )
        # Features whose ids are the rows of a table; NCF has two tables of each.
        ncf = {f"{n}_{c}": c for n in ("mf", "mlp") for c in (USER_CHANNEL, ITEM_CHANNEL)}
        features = {table: spec.channel_spec.get(ncf.get(table), [table])[0] for table in tables}
        for table, feature in features.items():
            num_rows, count = tables[table].shape[0], None
            if "cardinality" in spec.feature_spec.get(feature, {}):
                size_of = num_ids if has_histories(spec) else FeatureSpec.cardinality
                count = size_of(spec, feature)
            if count != num_rows:
                raise ValueError(
                    f"{FLAG} {path}: the table '{table}' has {num_rows:,} rows, {spec.origin} has "
                    f"{count or 'no'} ids of a feature '{feature}': pass the data set of the "
                    "training"
                )
        num_rows_of = {feature: tables[table].shape[0] for table, feature in features.items()}
        in_use = ids_in_use(spec, num_rows_of)
        yield f"tables of {folder}:"
        for table, entry in tables.items():
            norms = [np.linalg.norm(np.float32(rows), axis=1) for rows in rows_of(folder, entry)]
            yield f"  {table}: {_table_line(norms, entry.shape[1], in_use.get(features[table]))}"


def ids_in_use(spec: FeatureSpec, num_ids: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Returns whether a training sample has each id, bool [ids], of the features whose values this
    tool reads."""
    in_use: dict[str, np.ndarray] = {}
    for chunk in spec.source_spec.get(TRAIN, ()):
        features = [name for name in chunk.features if name in num_ids]
        if not features or not is_readable(spec, chunk):
            continue
        in_use |= {feature: np.zeros(num_ids[feature], bool) for feature in features}
        for columns in column_blocks(spec, chunk, open_chunk(spec, TRAIN, chunk)):
            for feature in features:
                in_use[feature][columns[feature].ravel()] = True
    return in_use


def _table_line(norms: list[np.ndarray], num_columns: int, in_use: np.ndarray | None) -> str:
    """Returns sizes and norms of a table, and those of its rows that no training sample has."""
    joined = np.concatenate(norms)
    line = (
        f"{len(joined):,} x {num_columns}, norms of rows: min {joined.min():.4g}, mean "
        f"{joined.mean(dtype=np.float64):.4g}, max {joined.max():.4g}"
    )
    if in_use is None:
        return f"{line}; ids in use are unknown"
    num_unused = int(np.count_nonzero(~in_use))
    line += f"; {num_unused:,} ids ({num_unused / len(joined):.1%}) in no row of '{TRAIN}'"
    if not num_unused:
        return line
    return f"{line}, mean norm {joined[~in_use].mean(dtype=np.float64):.4g}"
