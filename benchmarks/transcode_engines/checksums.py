"""Every preparation of own data by DuckDB and Spark: the checksums of all files must be equal.

A million rows of each kind, and 10,000 odd ones: texts with quotes, separators, line ends and
spaces, in many scripts, empty, of 20,000 characters, and a value that a third of the rows has.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.harness import preparations
from benchmarks.harness.report import Page, command, table

ODD_TEXTS = (
    *(
        "",
        " ",
        "  x",
        "x  ",
        '"',
        'a "quoted" word',
        "a,b",
        "a;b",
        "tab\there",
    ),
    *("NULL", "nan", "None", "-0", "007", "1e400", "true", "\\N", "\\", "'", "%", "a=b/c", "#"),
    *(
        "Zürich",
        "Zu\u0308rich",
        "İstanbul",
        "straße",
        "日本語",
        "한국어",
        "ελληνικά",
        "עברית",
        "\u200b",
    ),
    *("🙂", "👩‍👩‍👧", "\ufeff", "\u2028", "\x7f", "x" * 20_000, "ß" * 20_000),
)


LINE_ENDS = ("line\nend", "\r\n", "\r")  # in Parquet only: a record of CSV files is one line


def odd(draw: np.random.Generator, num_rows: int, texts: Sequence[str]) -> pa.Array:
    """Draws texts, the first of them for a third of the rows, and new ones."""
    pool = [texts[0]] * (len(texts) // 2) + list(texts) + [f"new {i}" for i in range(num_rows // 4)]
    return pa.array(pool).take(pa.array(draw.integers(0, len(pool), num_rows)))


def texts_of(draw: np.random.Generator, num_rows: int, odd_texts: Sequence[str]) -> pa.Array:
    """Draws a text column: odd texts, or without them a skewed one."""
    if odd_texts:
        return odd(draw, num_rows, odd_texts)
    words = pa.array([f"Zürich {i}" for i in range(num_rows // 4)])
    return words.take(pa.array(draw.zipf(1.3, num_rows) % len(words)))


def log_of_clicks(num_rows: int, odd_texts: Sequence[str], seed: int) -> dict[str, pa.Array]:
    """A label, texts, numbers with gaps, and a time."""
    draw = np.random.default_rng(seed)
    price = pa.array(draw.gamma(2, 10, num_rows).round(2), mask=draw.random(num_rows) < 0.1)
    return {
        "bought": pa.array(draw.integers(0, 2, num_rows)),
        "user": pa.array(draw.integers(-(2**62), 2**62, num_rows // 4)).take(
            pa.array(draw.integers(0, num_rows // 4, num_rows))
        ),
        "city": texts_of(draw, num_rows, odd_texts),
        "word": texts_of(draw, num_rows, odd_texts[::-1]),
        "price": price,
        "time": pa.array(draw.permutation(num_rows)),
    }


def tags(draw: np.random.Generator, num_rows: int, odd_texts: Sequence[str]) -> pa.Array:
    """Three texts per row."""
    values = texts_of(draw, 3 * num_rows, odd_texts[9:])
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 3 * num_rows + 1, 3, np.int32)), values)


def write_csv(folder: Path, num_rows: int, is_odd: bool) -> tuple[str, ...]:
    path = folder / "log.csv"
    pa_csv.write_csv(pa.table(log_of_clicks(num_rows, ODD_TEXTS * is_odd, 1)), path)
    return ("--input", str(path), *TRANSCODE)


def write_parquet(folder: Path, num_rows: int, is_odd: bool) -> tuple[str, ...]:
    path, columns = (
        folder / "log.parquet",
        log_of_clicks(num_rows, (ODD_TEXTS + LINE_ENDS) * is_odd, 2),
    )
    pq.write_table(pa.table(columns), path, row_group_size=100_000)
    return ("--input", str(path), *TRANSCODE)


def write_multi_hot(folder: Path, num_rows: int, is_odd: bool) -> tuple[str, ...]:
    path, odd_texts = folder / "log.parquet", (ODD_TEXTS + LINE_ENDS) * is_odd
    columns = log_of_clicks(num_rows, odd_texts, 3)
    columns["tags"] = tags(np.random.default_rng(4), num_rows, odd_texts)
    pq.write_table(pa.table(columns), path, row_group_size=100_000)
    return ("--input", str(path), *TRANSCODE)


def interactions(num_rows: int, is_odd: bool, seed: int) -> dict[str, pa.Array]:
    """Users, items and times; empty users and items, and blanks around them, are errors."""
    draw = np.random.default_rng(seed)
    words = [text for text in ODD_TEXTS if text and text == text.strip()]
    if is_odd:
        users, items = (odd(draw, num_rows, part) for part in (words, words[::-1]))
    else:
        users = pa.array(
            np.char.add("user ", draw.integers(0, num_rows // 20, num_rows).astype(str))
        )
        items = pa.array(np.char.add("item ", (draw.zipf(1.3, num_rows) % 50_000).astype(str)))
    return {"user": users, "item": items, "time": pa.array(draw.integers(0, 10**9, num_rows))}


def write_histories(folder: Path, num_rows: int, is_odd: bool) -> tuple[str, ...]:
    path = folder / "events.csv"
    pa_csv.write_csv(pa.table(interactions(num_rows, is_odd, 5)), path)
    flags = ("--user_column", "user", "--item_column", "item", "--time_column", "time")
    return ("--interactions", str(path), "--input_format", "csv", *flags)


def write_ratings(folder: Path, num_rows: int, is_odd: bool) -> tuple[str, ...]:
    path = folder / "ratings.csv"
    pa_csv.write_csv(pa.table(interactions(num_rows, is_odd, 6)), path)
    flags = ("--user_column", "user", "--item_column", "item", "--timestamp_column", "time")
    return ("--input", str(path), *flags, "--min_ratings", "2")


TRANSCODE = ("--label", "bought", "--split", "0.8,0.1,0.1", "--fill_missing", "mean")
SPARK = ("--engine", "spark", "--master", "local[2]")
# Module, flag of the output, and what writes the input and returns the other flags.
KINDS: Mapping[str, tuple[str, str, Callable]] = {
    "CSV": ("dataloading.transcode", "--output", write_csv),
    "Parquet": ("dataloading.transcode", "--output", write_parquet),
    "Parquet, multi-hot": ("dataloading.transcode", "--output", write_multi_hot),
    "histories": ("preproc.amazon_books", "--output_path", write_histories),
    "ratings": ("preproc.movielens", "--output", write_ratings),
}


def compare(kind: str, num_rows: int, is_odd: bool, work: Path) -> tuple[str, ...]:
    """Returns a row of the table: seconds of both engines, and whether their files are equal."""
    module, output_flag, write = KINDS[kind]
    folder = work / "input"
    folder.mkdir()
    flags = write(folder, num_rows, is_odd)
    runs = [
        preparations.prepare(work, module, *flags, *engine, flag=output_flag)
        for engine in (("--engine", "duckdb"), SPARK)
    ]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    checksums = {run.checksum for run in runs}
    seconds = (f"{run.elapsed_s:.1f}" for run in runs)
    digest = checksums.pop()[:16] if len(checksums) == 1 else "DIFFERENT"
    return (kind, "odd" if is_odd else "regular", f"{num_rows:,}", *seconds, digest)


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.report.parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--odd_rows", type=int, default=10_000)
    args = parser.parse_args(argv)
    packages = [
        preparations.versions("duckdb", "pyarrow", "numpy"),
        preparations.engine_versions("pyspark", "duckdb", "pyarrow", "numpy"),
    ]
    page = Page("Own data by two engines", [command("transcode_engines.checksums", args)], packages)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for num_rows, is_odd in ((args.rows, False), (args.odd_rows, True)):
                rows.append(compare(kind, num_rows, is_odd, Path(folder)))
                print(*rows[-1], file=sys.stderr)
    columns = ("data", "values", "rows", "DuckDB, s", "Spark local[2], s", "SHA-256 of the files")
    page.add("One run each", *table(columns, rows, 2))
    num_different = sum(row[-1] == "DIFFERENT" for row in rows)
    page.judge(f"{num_different} of {len(rows)} differ", 0, not num_different)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
