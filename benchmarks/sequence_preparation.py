"""The preparation of reviews for SIM, DIEN and DIN by DuckDB and NVTabular, interleaved.

Every file of every run must be the same, or the benchmark stops.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import preparations
from benchmarks.harness.preparations import Preparation, median_s, run

ENGINES = ("duckdb", "nvtabular")
TARGET_RATIO = 1  # DuckDB's speed relative to NVTabular's


def generate(folder: Path, num_reviews: int) -> tuple[object, ...]:
    run("preproc.amazon_books.generate_reviews", "--output", folder, "--reviews", num_reviews)
    return ("--amazon_dataset_path", folder)


REVIEWS = Preparation(
    name="sequence_preparation",
    title="Reviews for sequential recommenders, prepared by two engines",
    module="preproc.amazon_books",
    unit="reviews",
    generate=generate,
    output_flag="--output_path",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, ENGINES, count=1_000_000, memory_count=2_000_000)
    args = parser.parse_args(argv)
    page, runs = preparations.measure(REVIEWS, args)
    first, *others = args.engines
    for other in others:
        ratio = median_s(runs[other]) / median_s(runs[first])
        text = f"{first} is {ratio:.1f} times as fast as {other}"
        page.judge(text, TARGET_RATIO, ratio >= TARGET_RATIO)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
