"""Generates logs that look like Criteo's, for demos, tests and benchmarks.

Categorical values follow a power law, about a quarter of the fields is missing, and a click depends
on three numerical and four categorical features through a fixed logistic rule.

python -m preproc.criteo.generate_logs --output raw --days 3 --rows_per_day 1000
"""

import contextlib
import gzip
import sys
from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from config.command import CommandOptions, parse
from config.flag import flag
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.generators import power_law
from runtime.cli import exit_status
from runtime.files.outputs import output_file

# Numbers of different values, of the order of the Criteo Kaggle log's.
NUM_VALUES = (
    *(1460, 583, 1_000_000, 2_000_000, 305, 24, 12_517, 633, 3, 93_145, 5683, 800_000, 3194),
    *(27, 14_992, 500_000, 10, 5652, 2173, 4, 700_000, 18, 15, 286_181, 105, 142_572),
)
# Missing share of column i: 0 to 0.5, spread evenly over the columns.
NUMERICAL_MISSING = tuple(0.5 * (i * 0.618 % 1) for i in range(NUM_NUMERICAL))
CATEGORICAL_MISSING = tuple(0.5 * (i * 0.382 % 1) for i in range(NUM_CATEGORICAL))
# The click rule: logit = bias + sum of numerical weights * (log(x + 3) - 2) + effects of values.
CLICK_BIAS = -0.8
NUMERICAL_WEIGHTS = {0: 0.6, 3: -0.5, 7: 0.4}
CATEGORICAL_EFFECTS = {5: 1.0, 8: 0.8, 13: 1.0, 16: 0.7}  # standard deviation over the values
_NUM_LEVELS = 2000  # different values of a numerical
_BLOCK_ROWS = 50_000
_COLUMNS = [str(i) for i in range(1 + NUM_NUMERICAL + NUM_CATEGORICAL)]


def generate_day(path: Path, num_rows: int, seed: int) -> None:
    """Writes one day file, gzip if its name ends in .gz. The same seed gives the same lines."""
    random = np.random.default_rng(seed)
    quantiles = (np.arange(_NUM_LEVELS) + 0.5) / _NUM_LEVELS
    scales = np.geomspace(1, 300, NUM_NUMERICAL)
    levels = [np.floor(scale * (quantiles**-0.9 - 1)).astype(np.int64) - 2 for scale in scales]
    effects = {
        column: np.random.default_rng(column).normal(0, scale, NUM_VALUES[column])
        for column, scale in CATEGORICAL_EFFECTS.items()
    }
    options = pa_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    # No time stamp in the gzip header: the same lines give the same bytes.
    is_gzip = path.suffix == ".gz"
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(output_file(path))
        if is_gzip:
            file = stack.enter_context(gzip.GzipFile(path.name, "wb", 6, file, mtime=0))
        for start in range(0, num_rows, _BLOCK_ROWS):
            size = min(_BLOCK_ROWS, num_rows - start)
            logit = np.full(size, CLICK_BIAS)
            fields = []
            for i in range(NUM_NUMERICAL):
                level = random.integers(0, _NUM_LEVELS, size)
                missing = random.random(size) < NUMERICAL_MISSING[i]
                if i in NUMERICAL_WEIGHTS:
                    signal = NUMERICAL_WEIGHTS[i] * (np.log(levels[i][level] + 3) - 2)
                    logit += np.where(missing, 0, signal)
                fields.append(pa.array(levels[i][level], mask=missing))
            for i in range(NUM_CATEGORICAL):
                value = power_law(random, NUM_VALUES[i], size)
                missing = random.random(size) < CATEGORICAL_MISSING[i]
                if i in effects:
                    logit += np.where(missing, 0, effects[i][value])
                fields.append(_hex_text(i, value, missing))
            label = random.random(size) < 1 / (1 + np.exp(-logit))
            rows = pa.record_batch([pa.array(label.astype(np.int8)), *fields], _COLUMNS)
            pa_csv.write_csv(rows, file, options)


def _hex_text(column: int, value: np.ndarray, missing: np.ndarray) -> pa.Array:
    """A column's values as 8 hexadecimal digits, different for different values."""
    # An odd factor makes the product a permutation of the 32-bit numbers.
    mixed = (value.astype(np.uint64) * 2_654_435_761 + 2_246_822_519 * (column + 1)) % (1 << 32)
    nibbles = (mixed[:, None] >> np.arange(28, -4, -4, dtype=np.uint64)) & np.uint64(15)
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles].view("S8").ravel()
    return pa.array(text, pa.binary(), mask=missing).cast(pa.string())


@dataclass(frozen=True)
class LogOptions(CommandOptions):
    """Numbers and folder of the files; raises ValueError for a number out of range."""

    output: Path = flag(MISSING, "folder for the day files; made if absent")
    days: int = flag(3, "number of day files", at_least=1)
    rows_per_day: int = flag(1000, "rows of a file", at_least=1)
    seed: int = flag(0, "other seeds give other content", at_least=0)
    gzip: bool = flag(False, "write day_N.gz")


def main(argv: list[str] | None = None) -> int:
    """Writes day_0, day_1, ... (or day_0.gz, ...) into a folder; returns the exit status."""

    def work() -> None:
        options = parse(LogOptions, argv, "preproc.criteo.generate_logs", __doc__)
        folder = options.output
        folder.mkdir(parents=True, exist_ok=True)
        for day in range(options.days):
            name = f"day_{day}.gz" if options.gzip else f"day_{day}"
            generate_day(folder / name, options.rows_per_day, [options.seed, day])
        print(f"{options.days} x {options.rows_per_day:,} rows in {folder}")

    return exit_status(work, "interrupted; each file that is there is complete")


if __name__ == "__main__":
    sys.exit(main())
