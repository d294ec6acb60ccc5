"""The peer of `preparation --data table`: vocabularies, ids and standardized numbers by Polars.

python polars_table.py TABLE FOLDER
"""

import sys

import numpy as np
import polars as pl  # in an environment of its own

LABEL, IDS, NUMBERS = "click", ("user", "item", "city"), ("price", "age", "score")


def main(source: str, folder: str) -> None:
    table = pl.read_csv(source, schema_overrides={"item": pl.String})
    drawn = np.random.default_rng(0).random(table.height)
    split = np.searchsorted([0.8, 0.9], drawn, side="right").astype(np.int8)
    table = table.with_columns(pl.Series("split", split))
    train = table.filter(pl.col("split") == 0)
    for name in IDS:
        counts = train.group_by(name).len().filter(pl.col("len") >= 2)
        counts = counts.sort(["len", name], descending=[True, False])
        ids = counts.with_row_index("id", offset=1).select(name, pl.col("id").cast(pl.Int32))
        table = table.join(ids, on=name, how="left", maintain_order="left")
        table = table.rename({"id": f"{name}_id"}).with_columns(pl.col(f"{name}_id").fill_null(0))
    for name in NUMBERS:
        scaled = (pl.col(name) - train[name].mean()) / train[name].std(ddof=0)
        table = table.with_columns(scaled.cast(pl.Float32))
    for number, name in enumerate(("train", "validation", "test")):
        rows = table.filter(pl.col("split") == number)
        rows[LABEL].cast(pl.Boolean).to_numpy().tofile(f"{folder}/{name}_label.bin")
        numbers = np.column_stack([rows[column].to_numpy() for column in NUMBERS])
        numbers.tofile(f"{folder}/{name}_numerical.bin")
        for column in IDS:
            rows[f"{column}_id"].to_numpy().tofile(f"{folder}/{name}_{column}.bin")


if __name__ == "__main__":
    main(*sys.argv[1:])
