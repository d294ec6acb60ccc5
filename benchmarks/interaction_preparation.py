"""The preparation of ratings for NCF by DuckDB and NumPy, and by pandas, interleaved.

Both sides must train on the same rows and ask the same questions, or the benchmark stops; negatives
are each side's own. Then ours alone under `--memory_limit_mib`, with the same files. Time is judged
for 20 million ratings only.
"""

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, median_s, run
from benchmarks.harness.report import Page, command
from dataloading.engines import environment
from preproc.movielens.generate_ratings import RATINGS

OURS, PANDAS = "preproc.movielens (DuckDB, NumPy)", "pandas, NumPy"
TARGET_S, TARGET_RATINGS = 120, 20_000_000
LIST_LENGTH = 101  # both sides' default: a positive and 100 negatives


def prepare(side: str, log: Path, work: Path, *flags: object) -> PreparationRun:
    if side == OURS:
        command = ("preproc.movielens", "--input", log, *flags)
        return preparations.prepare(work, *command, checksum_of=checksum)
    command, options = ("benchmarks.pandas_interactions", log), {"python": environment.python()}
    return preparations.prepare(work, *command, flag="", checksum_of=checksum, **options)


def checksum(folder: Path) -> str:
    """SHA-256 of the training rows, and of the user and the positive of each question."""
    digest = hashlib.sha256()
    for name in ("user.bin", "item.bin"):
        digest.update((folder / "train" / name).read_bytes())
        lists = np.fromfile(folder / "test" / name, np.int32).reshape(-1, LIST_LENGTH)
        digest.update(lists[:, 0].tobytes())
    return digest.hexdigest()


def compare(log: Path, work: Path, repeats: int) -> dict[str, list[PreparationRun]]:
    sides = (OURS, PANDAS)
    return preparations.compare(sides, lambda side: prepare(side, log, work), repeats, "rows")


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=3)
    parser.add_argument("--ratings", type=int, default=TARGET_RATINGS)
    parser.add_argument("--memory_limit_mib", type=int, default=1024, help="of the last run")
    args = parser.parse_args(argv)
    packages = [
        preparations.versions("duckdb", "pyarrow", "numpy"),
        preparations.engine_versions("pandas", "numpy"),
    ]
    commands = [command("interaction_preparation", args)]
    page = Page("Ratings for NCF, prepared", commands, packages)
    limit_mib = args.memory_limit_mib
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work, log = Path(folder), Path(folder, RATINGS)
        flags = ("--output", work, "--ratings", args.ratings)
        made_s = run("preproc.movielens.generate_ratings", *flags).elapsed_s
        runs = compare(log, work, args.repeats)
        size_mb = log.stat().st_size / 1e6
        page.add(
            f"{args.ratings:,} generated ratings ({size_mb:,.0f} MB, {made_s:.0f} s)",
            *preparations.table(runs, "ratings", args.ratings),
        )
        limited = prepare(OURS, log, work, "--memory_limit", f"{limit_mib}MiB")
    if limited.checksum != runs[OURS][0].checksum:
        raise RuntimeError("different rows under the memory limit")
    ours_s = median_s(runs[OURS])
    is_judged = args.ratings == TARGET_RATINGS
    text = f"{ours_s:.1f} s, judged for 20 million ratings"
    page.judge(text, TARGET_S if is_judged else None, ours_s <= TARGET_S)
    page.judge(f"{median_s(runs[PANDAS]) / ours_s:.1f} times as fast as pandas")
    text = f"with --memory_limit {limit_mib}MiB: {limited.elapsed_s:.1f} s, "
    text += f"{limited.peak_mib:,.0f} MiB"
    page.judge(text, limit_mib, limited.peak_mib <= limit_mib)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
