"""Cost of a checkpoint every 100 steps, as a share of the training throughput.

One process trains the recipe `dlrm.py` in turns of 100 steps, some of which begin with a save; the
writing continues during the steps that follow. In parts, each in its own time; the last one makes
the page of all:

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness import machine, report
from benchmarks.harness.ranks import Ranks, ask_and_watch
from benchmarks.harness.report import Page, listed, summary, table

NUM_TABLES = len(workload.TABLE_ROWS)
WARM_UP_STEPS = 10
TARGET_COST = 0.05
# Steps after a save that may be slower for it: it is on the disk before they are over.
STEPS_AFTER = 20


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


def cost_within_turn(turn: dict) -> float:
    """Cost of a save to the turn that it begins: what training waits, and what the next steps take
    more than the later ones of the same turn."""
    next_s = turn["steps_s"][:STEPS_AFTER]
    later_s = turn["steps_s"][STEPS_AFTER:] or next_s
    step_s = float(np.median(later_s))
    added_s = turn["copy_s"] + turn["rest_s"] + sum(next_s) - len(next_s) * step_s
    return added_s / (len(turn["steps_s"]) * step_s + added_s)


def costs(measured: Mapping) -> np.ndarray:
    return np.array([cost_within_turn(each["saving"]) for each in measured["rounds"]])


def values_of(measured: Mapping, side: str, key: str) -> np.ndarray:
    """A value of the turns of "plain" or "saving", one per round."""
    return np.array([each[side][key] for each in measured["rounds"]])


def figures(measured: Mapping, num_samples: int) -> dict[str, dict[str, object]]:
    """The row of a setting in the table of each section: cells by column."""
    plain_s, saving_s = (values_of(measured, side, "turn_s") for side in ("plain", "saving"))
    copy_s, rest_s, disk_s = (
        values_of(measured, "saving", key) for key in ("copy_s", "rest_s", "disk_s")
    )
    cpu_s = values_of(measured, "saving", "cpu_s") - values_of(measured, "plain", "cpu_s")
    plain_mib, saving_mib = (values_of(measured, side, "peak_mib") for side in ("plain", "saving"))
    before_mib, size_mib = measured["before_mib"], measured["size_mib"]
    parts = {
        part: float(np.median([seconds[part] for seconds in measured["parts"]]))
        for part in next(iter(measured["parts"]), ())
    }
    return {
        "Training with and without saving": {
            "rounds": len(plain_s),
            "samples/s without": summary(num_samples / plain_s),
            "samples/s, a save per turn": summary(num_samples / saving_s),
            "of the samples/s without": summary(plain_s / saving_s, ".3f"),
            "cost within a turn": f"{summary(100 * costs(measured), '.1f')} %",
        },
        "Seconds that a save adds": {
            "all steps without": summary(plain_s, ".1f"),
            "a save adds": summary(saving_s - plain_s, ".2f"),
            "training waits for the copy": summary(copy_s, ".2f"),
            "waits for the disk at the end": summary(rest_s, ".2f"),
            "slower steps": summary(saving_s - plain_s - copy_s - rest_s, ".2f"),
            "CPU seconds added": summary(cpu_s, ".2f"),
        },
        "A save": {
            "MiB saved": f"{size_mib:,.0f}",
            "training waits, s": summary(copy_s, ".2f"),
            "on the disk after, s": summary(disk_s, ".1f"),
            "MiB/s": summary(size_mib / disk_s),
            "MiB of memory before": f"{before_mib:,.0f}",
            "without": f"{plain_mib.max():,.0f}",
            "saving": f"{saving_mib.max():,.0f}",
            "more than before": f"{saving_mib.max() - before_mib:,.0f}",
        },
        "Parts of a save: seconds (MiB/s) of each alone": {
            part: f"{seconds:.2f} ({size_mib / seconds:,.0f})" for part, seconds in parts.items()
        },
    }


def page_of(measurements: Mapping[str, dict], args) -> Page:
    versions = next(iter(measurements.values()))["versions"]
    rounds = [each for measured in measurements.values() for each in measured["rounds"]]
    foreign = {
        side: summary([each[side]["foreign_cpu"] for each in rounds], ".2f")
        for side in ("plain", "saving")
    }
    facts = [
        f"checkpoints on: {machine.describe_disk(args.folder)}",
        f"TensorFlow {versions['tensorflow']}, NumPy {versions['numpy']}, xxhash "
        f"{versions['xxhash']}",
        f"the recipe `dlrm.py` with its loader: batch {args.batch_size:,}, "
        f"{workload.describe(table_rows(args.table_mib))}; {args.threads} threads",
        f"a round is a turn of {args.steps} steps with a save and one without; median [quartiles] "
        "over the rounds, ratios within a round",
        f"other processes kept {foreign['plain']} cores busy during turns without a save, and "
        f"{foreign['saving']}, the system's own writers among them, during turns with one",
    ]
    commands = [f"- {run}" for measured in measurements.values() for run in measured["commands"]]
    page = Page("Cost of checkpoints to the training throughput", commands, facts)
    num_samples = args.steps * args.batch_size
    rows = {name: figures(m, num_samples) for name, m in measurements.items()}
    for section in next(iter(rows.values())):
        columns = max((row[section] for row in rows.values()), key=len)
        cells = [(SETTINGS[name].label, *row[section].values()) for name, row in rows.items()]
        page.add(section, *table(("setting", *columns), cells))
    for name, measured in measurements.items():
        cost = float(np.median(costs(measured)))
        plain_s, saving_s = (values_of(measured, side, "turn_s") for side in ("plain", "saving"))
        of_turns = 1 - float(np.median(plain_s / saving_s))
        text = (
            f"{SETTINGS[name].label}: a save of {measured['size_mib']:,.0f} MiB every {args.steps} "
            f"steps costs {cost:.1%} of the samples per second (turn against turn {of_turns:.1%})"
        )
        target = f"at most {TARGET_COST:.0%}" if SETTINGS[name].has_target else None
        page.judge(text, target, cost <= TARGET_COST)
    return page


def table_rows(table_mib: int) -> list[int]:
    """Rows of the tables, which are equal and have `table_mib` MiB together."""
    return [-(-table_mib * 2**20 // (NUM_TABLES * workload.EMBEDDING_DIM * 4))] * NUM_TABLES


def read_measurements(path: Path | None, sizes: dict[str, Any]) -> dict[str, dict]:
    """Measurements of earlier runs, by setting; empty without a file.

    Raises:
        ValueError: the file has measurements of other sizes.
    """
    if path is None or not path.exists():
        return {}
    content = json.loads(path.read_text())
    if content["of"] != sizes:
        raise ValueError(
            f"--measurements {path} are of {content['of']}, now it is {sizes}: give "
            "another file, or the same sizes"
        )
    return content["found"]


def measure_round(worker: Ranks, saving_first: bool, steps: int) -> dict[str, Any]:
    measured = {}
    for saving in (saving_first, not saving_first):
        arguments = {"method": "turn", "saving": saving, "steps": steps}
        (answer,), foreign_cpu = ask_and_watch(worker, "call", **arguments)
        turn = {**answer["result"], "cpu_s": answer["cpu_s"], "foreign_cpu": foreign_cpu}
        measured["saving" if saving else "plain"] = turn
    return measured


def measure(args, name: str, folder: Path, measurements: dict[str, dict]) -> None:
    """Adds rounds to the measurements of a setting, and passes over the parts of a save."""
    setting = SETTINGS[name]
    num_rounds = args.rounds if setting.has_target else -(-args.rounds // 2)
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="checkpoint_cost.", dir=args.folder) as checkpoints:
        command = [sys.executable, "-m", "benchmarks.checkpoint_cost.worker"]
        command += ["--folder", str(folder), "--checkpoints", checkpoints]
        command += ["--threads", str(args.threads)]
        with contextlib.closing(Ranks("the training", command)) as worker:
            worker.ask("start", batch_size=args.batch_size, flags=setting.flags)
            worker.call("warm_up", steps=WARM_UP_STEPS)
            (described,) = worker.ask("describe")
            measured = measurements.setdefault(name, {"commands": [], "rounds": [], "parts": []})
            measured |= {key: described[key] for key in ("size_mib", "before_mib", "versions")}
            words = argparse.Namespace(**vars(args) | {"settings": name})
            measured["commands"].append(report.command("checkpoint_cost", words))
            for _ in range(num_rounds):
                saving_first = len(measured["rounds"]) % 2 == 0
                measured["rounds"].append(measure_round(worker, saving_first, args.steps))
                print(f"{name}: round {len(measured['rounds'])}", file=sys.stderr, flush=True)
            for _ in range(args.parts):
                measured["parts"].append(worker.call("save_parts_s", folder=checkpoints))


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__)
    parser.add_argument("--settings", type=listed(str), default=",".join(SETTINGS), help="to train")
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
    args = parser.parse_args(argv)
    if unknown := set(args.settings) - set(SETTINGS):
        parser.error(f"--settings are {','.join(SETTINGS)}, got {','.join(sorted(unknown))}")
    sizes = {name: getattr(args, name) for name in ("steps", "threads", "batch_size", "table_mib")}
    try:
        measurements = read_measurements(args.measurements, sizes)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if args.rounds:
        with tempfile.TemporaryDirectory() as temporary:
            folder, num_rows = Path(temporary), workload.NUM_BATCHES * args.batch_size
            workload.make_rows(folder / "rows", num_rows, table_rows(args.table_mib))
            try:
                for name in args.settings:
                    measure(args, name, folder, measurements)
            finally:
                if args.measurements:
                    content = {"of": sizes, "found": measurements}
                    args.measurements.write_text(json.dumps(content, indent=1))
    measurements = {name: measurements[name] for name in SETTINGS if name in measurements}
    if not measurements:
        parser.error("--rounds 0 makes the page of --measurements, which is empty")
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
