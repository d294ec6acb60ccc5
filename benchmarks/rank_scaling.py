"""Training on N ranks of one thread compared with one rank of N threads.

Every side trains the recipe `dlrm.py` on the same samples at the same global batch, started as a
user would start it, and is stopped while it waits for its turn.
"""

import importlib.metadata
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from distributed_embeddings.planner.traffic import KINDS

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.step_parts import parts_table
from benchmarks.harness import report, training
from benchmarks.harness.report import Page, listed, table
from benchmarks.harness.training import Case, Side, TrainingMeasurements

LAUNCHERS = {"gloo": "Gloo (horovodrun)", "mpi": "MPI (mpirun)"}
TARGET_RATIO = 0.85  # of float32
# Flags, and the relative difference of the sides' losses in the first steps.
SETTINGS = {
    "float32": ({}, 1e-4),
    "float32, vectors travel as bfloat16": ({"exchange_dtype": "bfloat16"}, 2e-2),
    "bfloat16": ({"amp": True}, 2e-2),
}
_HAS_MPI = (
    "from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow\n"
    "raise SystemExit(not horovod_tensorflow().mpi_built())"
)


def launch_command(launcher: str, num_ranks: int) -> tuple[str, ...]:
    """The command line that starts `num_ranks` processes of the command that follows it."""
    if launcher == "gloo":
        return (str(_horovodrun()), "--gloo", "-np", str(num_ranks))
    free = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
    return ("mpirun", *free, "-np", str(num_ranks))


def why_missing(launcher: str) -> str | None:
    """Why this machine cannot start ranks with a launcher; None if it can."""
    if not _horovodrun().exists():
        return "Horovod is not installed (`make setup` does it)"
    if launcher == "mpi" and not shutil.which("mpirun"):
        return "mpirun is not installed"
    if launcher == "mpi":
        check = subprocess.run([sys.executable, "-c", _HAS_MPI], capture_output=True, check=False)
        return "Horovod was built without MPI" if check.returncode else None
    return None


def _horovodrun() -> Path:
    return Path(sys.executable).parent / "horovodrun"


def sides_of(launchers: Sequence[str], threads: int, ranks: int) -> list[Side]:
    """One rank with all threads, which the others are compared with; then `ranks` by launcher."""
    one = Side(
        f"1 rank x {threads} threads",
        "dlrm_training.ours",
        ("--untimed_loss",),
        is_torch=False,
        launch=("env",),  # stopped between its turns, like the others
        threads=threads,
    )
    each = threads // ranks
    name = f"{ranks} ranks x {each} thread{'s' if each > 1 else ''}, "
    return [
        one,
        *(
            one._replace(
                name=name + LAUNCHERS[launcher],
                launch=launch_command(launcher, ranks),
                num_ranks=ranks,
                threads=each,
            )
            for launcher in launchers
        ),
    ]


def cases_of(args, sides: Sequence[Side]) -> list[Case]:
    """A case per batch size and setting; one operation at a time where parts are measured."""
    traced = [side._replace(flags=(*side.flags, "--inter_op_threads", "1")) for side in sides]
    return [
        Case(
            f"batch {batch_size:,}, {name}",
            sides,
            batch_size,
            {"flags": flags, "batch_size": batch_size},
            tolerance,
            args.rounds,
            warmup_steps=args.warmup_rounds * args.steps,
            parts=traced if args.trace_steps else (),
        )
        for batch_size in args.batch_sizes
        for name, (flags, tolerance) in SETTINGS.items()
        if name.split(",")[0] in args.precisions
    ]


def num_batches(batch_size: int) -> int:
    """Different batches, an epoch of the benchmark."""
    return max(4, min(workload.NUM_BATCHES, 2**18 // batch_size))


def _mpi_version() -> str:
    if not shutil.which("mpirun"):
        return "no mpirun"
    return subprocess.check_output(["mpirun", "--version"], text=True).splitlines()[0]


def page_of(measurements: TrainingMeasurements, args, missing: dict[str, str]) -> Page:
    """The page; `missing` are launchers that this machine does not have, and why."""
    facts = [
        f"TensorFlow {measurements.version(measurements.ours)}, "
        f"Horovod {importlib.metadata.version('horovod')}, {_mpi_version()}",
        *(f"not measured, {launcher}: {why}" for launcher, why in missing.items()),
        f"the recipe `dlrm.py` with its loader: {workload.describe(args.table_rows)}, SGD",
        f"{args.steps} steps per turn, {args.rounds} rounds after {args.warmup_rounds} to warm up; "
        "median [quartiles] over the rounds, ratios taken within a round",
    ]
    for case, losses in measurements.first_losses.items():
        values = ", ".join(f"{loss:.5f}" for loss in losses)
        facts.append(f"first losses of all sides at {case}: {values}")
    facts.append(training.foreign_cpu(measurements.foreign_cpu))
    commands = [report.command("rank_scaling", args)]
    page = Page("Training on several ranks compared with one", commands, facts)
    speeds = measurements.steps_table("case", "of one rank's samples/s", ".3f", exponent=-1)
    page.add("Training steps", *speeds)
    page.add("CPU time and memory of each rank", *_cpu_table(measurements))
    page.add("Bytes exchanged", *_bytes_table(measurements))
    page.add("Where the time goes", *_parts_tables(measurements))
    for name, case in measurements.cases.items():
        for side in case.sides[1:]:
            ratio = float(np.median(1 / measurements.slower(side.name, name)))
            text = f"{name}, {side.name}: {ratio:.3f} of one rank's samples per second"
            has_target = name.endswith(", float32")
            page.judge(text, TARGET_RATIO if has_target else None, ratio >= TARGET_RATIO)
    return page


def _cpu_table(measurements: TrainingMeasurements) -> list[str]:
    rows = []
    for (side, case), ranks in measurements.described.items():
        by_rank = np.median(measurements.cpu_ms[side, case], axis=0)
        for rank, (user, system) in enumerate(by_rank):
            total = "" if rank else f"{by_rank.sum():.0f}"
            gib = f"{ranks[rank]['peak_kib'] / 2**20:.2f}"
            rows.append((case, side, rank, f"{user:.0f}", f"{system:.0f}", total, gib))
    columns = ("case", "side", "rank", "ms in the program", "ms in the system")
    columns += ("sum of the ranks", "peak GiB")
    return table(columns, rows, num_text=2)


def _bytes_table(measurements: TrainingMeasurements) -> list[str]:
    rows = []
    for name, case in measurements.cases.items():
        for rank, described in enumerate(measurements.described[case.sides[-1].name, name]):
            sent = [described["sent"][kind] for kind in KINDS]
            rows.append((name, rank, *(f"{size / 1e6:.1f}" for size in (*sent, sum(sent)))))
    columns = ("ids", "vectors", "gradients of vectors", "copied tables", "dense gradients", "sum")
    note = "MB (10^6 bytes) per step that a rank sends to others, by the plan of the tables."
    return [note, "", *table(("case", "rank", *columns), rows)]


def _parts_tables(measurements: TrainingMeasurements) -> list[str]:
    lines = ["Milliseconds per step from TensorFlow's trace of the real step on every rank."]
    for name in measurements.cases:
        columns = {
            f"{side}: rank {rank}": parts
            for (side, case), ranks in measurements.parts.items()
            for rank, parts in enumerate(ranks)
            if case == name
        }
        if columns:
            lines += ["", f"At {name}:", "", *parts_table(columns)]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rounds=10, steps=3, threads=2)
    parser.add_argument("--batch_sizes", type=listed(int), default="8192,65536")
    parser.add_argument("--warmup_rounds", type=int, default=1, help="rounds that do not count")
    parser.add_argument("--trace_steps", type=int, default=5, help="0: no table of the parts")
    parser.add_argument("--ranks", type=int, default=2, help="ranks that share the threads")
    parser.add_argument("--launchers", type=listed(str), default=",".join(LAUNCHERS))
    parser.add_argument("--precisions", type=listed(str), default=",".join(workload.PRECISIONS))
    parser.add_argument("--table_rows", type=listed(int), default=workload.TABLE_ROWS)
    args = parser.parse_args(argv)
    if args.threads % args.ranks:
        parser.error(f"--ranks {args.ranks} cannot share --threads {args.threads} evenly")
    for flag, known in (("launchers", LAUNCHERS), ("precisions", workload.PRECISIONS)):
        if unknown := set(getattr(args, flag)) - set(known):
            parser.error(f"--{flag} are {','.join(known)}, got {','.join(sorted(unknown))}")
    missing = {name: why for name in args.launchers if (why := why_missing(name))}
    present = [name for name in args.launchers if name not in missing]
    if not present:
        parser.error(f"no ranks to measure: {'; '.join(missing.values())}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def write_rows(folder: Path, case: Case) -> None:
        num_rows = num_batches(case.batch_size) * case.batch_size
        workload.make_rows(folder / "rows", num_rows, args.table_rows)

    measurements = TrainingMeasurements(cases_of(args, sides_of(present, args.threads, args.ranks)))
    measurements.measure_all(write_rows, args)
    return page_of(measurements, args, missing).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
