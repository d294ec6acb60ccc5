"""Cost of a checkpoint every 100 steps, as a share of the training throughput.

    make bench-checkpoints
    python -m benchmarks.checkpoint_cost --output benchmarks/results/checkpoint_cost_CPU_YYYYMM.md

One process trains the recipe `dlrm.py` in turns of 100 steps, some of which begin with a save; the
writing continues during the steps that follow. A round is a turn with a save and one without, in an
order that alternates. The exit code is 1 if saving costs more than the target.

In parts, each in its own time; the last one makes the page of all:

    python -m benchmarks.checkpoint_cost --measurements cost.json --settings float32
    python -m benchmarks.checkpoint_cost --measurements cost.json --settings bfloat16,adagrad
    python -m benchmarks.checkpoint_cost --measurements cost.json --rounds 0 --output PAGE
"""

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.checkpoint_cost import report as checkpoint_report
from benchmarks.dlrm_training import workload
from benchmarks.harness import machine
from benchmarks.harness.report import finish
from benchmarks.harness.worker import Worker

NUM_TABLES = len(workload.TABLE_ROWS)
WARM_UP_STEPS = 10


class CheckpointSetting(NamedTuple):
    """Flags that differ from the recipe's; `has_target` or for information."""

    label: str
    flags: dict[str, Any]
    has_target: bool


SETTINGS = {
    "float32": CheckpointSetting("float32, SGD", {}, True),
    "bfloat16": CheckpointSetting("bfloat16, SGD", {"amp": True}, True),
    "adagrad": CheckpointSetting(
        "float32, Adagrad for the tables", {"embedding_optimizer": "adagrad"}, False
    ),
}


@dataclass
class CheckpointMeasurements:
    """Measurements of one setting, of one or several runs.

    Attributes:
        commands: the runs.
        size_mib: of a checkpoint's weights.
        rounds: of each "saving" and "plain", the worker's answer on a turn, with "cpu_s" of the
          process and "foreign_cpu", cores that others kept busy; and "before_mib", the memory
          before the first save.
        parts: seconds of the parts of one save, a dictionary each time.
        versions: of the software.
    """

    commands: list[str] = field(default_factory=list)
    size_mib: float = 0.0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)


class Record:
    """The measurements of all settings, kept in a file from run to run.

    Args:
        path: the file; None to keep nothing.
        sizes: what measurements on one page have in common.

    Raises:
        ValueError: the file has measurements of something else.
    """

    def __init__(self, path: Path | None, sizes: dict[str, Any]):
        self._path, self._sizes = path, sizes
        self.measurements: dict[str, CheckpointMeasurements] = {}
        if path is not None and path.exists():
            content = json.loads(path.read_text())
            if content["of"] != sizes:
                raise ValueError(
                    f"--measurements {path} are of {content['of']}, now it is {sizes}: give "
                    "another file, or the same sizes"
                )
            self.measurements = {
                name: CheckpointMeasurements(**kept) for name, kept in content["found"].items()
            }

    def save(self) -> None:
        """Writes the file."""
        if self._path is not None:
            content = {
                "of": self._sizes,
                "found": {n: asdict(m) for n, m in self.measurements.items()},
            }
            self._path.write_text(json.dumps(content, indent=1))


def table_rows(table_mib: int) -> int:
    """Rows of each of the tables, which are equal and have `table_mib` MiB together."""
    return -(-table_mib * 2**20 // (NUM_TABLES * workload.EMBEDDING_DIM * 4))


@contextlib.contextmanager
def training(args, rows: Path) -> Iterator[Worker]:
    """A process that trains, without a model yet. Its checkpoints are removed at the end."""
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpoint_cost.", dir=args.folder) as folder:
        command = [sys.executable, "-m", "benchmarks.checkpoint_cost.worker", "--folder", folder]
        command += ["--dataset_path", str(rows), "--batch_size", str(args.batch_size)]
        command += ["--threads", str(args.threads)]
        with contextlib.closing(
            Worker("the training", command, {"TF_CPP_MIN_LOG_LEVEL": "2"})
        ) as worker:
            yield worker


def measure_turn(worker: Worker, saving: bool, steps: int) -> dict[str, float]:
    """One turn, and what the process and others used of the processor."""
    busy_s, begin = machine.busy_cpu_s(), time.perf_counter()
    answer = worker.ask("turn", saving=saving, steps=steps)
    busy_s = machine.busy_cpu_s() - busy_s - answer["cpu_s"]
    return {**answer, "foreign_cpu": busy_s / (time.perf_counter() - begin)}


def measure(args, name: str, rows: Path, record: Record) -> None:
    """Adds rounds to the measurements of a setting, and one pass over the parts of a save."""
    setting, measurements = (
        SETTINGS[name],
        record.measurements.setdefault(name, CheckpointMeasurements()),
    )
    num_rounds = args.rounds if setting.has_target else -(-args.rounds // 2)
    with training(args, rows) as worker:
        started = worker.ask("start", flags=setting.flags, warm_up_steps=WARM_UP_STEPS)
        measurements.size_mib, measurements.versions = started["size_mib"], worker.ask("describe")
        measurements.commands.append(command_of(args, name))
        for _ in range(num_rounds):
            saving_first = len(measurements.rounds) % 2 == 0
            measured: dict[str, Any] = {"before_mib": started["peak_mib"]}
            for saving in (saving_first, not saving_first):
                turn = measure_turn(worker, saving, args.steps)
                measured["saving" if saving else "plain"] = turn
            measurements.rounds.append(measured)
            print(f"{name}: {checkpoint_report.progress(measured)}", file=sys.stderr, flush=True)
            record.save()
        for _ in range(args.parts):
            measurements.parts.append(worker.ask("parts")["parts"])
        record.save()


def command_of(args, name: str) -> str:
    """The command line that measures a setting, without the names of files."""
    numbers = ("rounds", "steps", "parts", "threads", "batch_size", "table_mib")
    options = " ".join(f"--{number} {getattr(args, number)}" for number in numbers)
    return f"python -m benchmarks.checkpoint_cost --settings {name} {options}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    names = ",".join(SETTINGS)
    parser.add_argument("--settings", default=names, help="what to train")
    parser.add_argument(
        "--rounds",
        type=int,
        default=6,
        help="of float32 and bfloat16, half of it of adagrad; 0: only the page of --measurements",
    )
    parser.add_argument("--steps", type=int, default=100, help="steps from save to save")
    parser.add_argument("--parts", type=int, default=2, help="passes over the parts of a save")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=workload.BATCH_SIZE)
    parser.add_argument("--table_mib", type=int, default=2048, help="MiB of all tables together")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("runs"),
        help="on the disk to write to: three checkpoints of 2 GiB, of adagrad 4 GiB; a temporary "
        "folder in it is removed at the end",
    )
    parser.add_argument("--measurements", type=Path, help="JSON file to which rounds are added")
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    wanted = args.settings.split(",")
    if unknown := set(wanted) - set(SETTINGS):
        parser.error(f"--settings are {names}, got {','.join(sorted(unknown))}")
    sizes = {name: getattr(args, name) for name in ("steps", "threads", "batch_size", "table_mib")}
    try:
        record = Record(args.measurements, sizes)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if args.rounds:
        with tempfile.TemporaryDirectory() as temporary:
            rows = Path(temporary) / "rows"
            tables = [table_rows(args.table_mib)] * NUM_TABLES
            workload.make_rows(rows, workload.NUM_BATCHES * args.batch_size, tables)
            for name in wanted:
                measure(args, name, rows, record)
    measurements = [
        (SETTINGS[name], record.measurements[name])
        for name in SETTINGS
        if name in record.measurements
    ]
    if not measurements:
        parser.error("--rounds 0 makes the page of --measurements, which is empty")
    page, met = checkpoint_report.render(measurements, args, table_rows(args.table_mib))
    finish(page, met, args.output)


if __name__ == "__main__":
    main()
