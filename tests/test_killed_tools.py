"""Every tool, killed at random moments, with random contents next to its output.

Nothing foreign changes; the output is the earlier one or the new one; a repeated command completes
it, byte for byte as a run that was not killed. `make test-all` tries more moments.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from preproc.criteo.generate_logs import generate_day
from runtime.files.outputs import MARKER
from tests.conftest import run_forked

# Runs a tool; at its Nth change of a folder, or after a time, it is killed. Writes the number of
# changes to a file if it is not.
PROGRAM = """
import atexit, os, runpy, signal, sys, threading
folder, kind, value, counts, tool, *arguments = sys.argv[1:]
changes, target = 0, float(value)
events = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def count(event, values):
    global changes
    if event == "open":
        mode, flags = values[1:3]
        is_change = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    else:
        is_change = event in events
    if is_change and (folder in str(values[0]) or str(values[0])[:1] not in "/"):
        changes += 1
        if kind == "change" and changes == target:
            kill()

sys.addaudithook(count)
if kind == "seconds":
    timer = threading.Timer(target, kill)
    timer.daemon = True
    timer.start()
atexit.register(lambda: open(counts, "w").write(str(changes)))
sys.argv = [tool, *arguments]
sys.path.insert(0, os.getcwd())
if tool.endswith(".py"):
    runpy.run_path(tool, run_name="__main__")
else:
    runpy.run_module(tool, run_name="__main__", alter_sys=True)
"""


class Tool(NamedTuple):
    """A command that writes an output.

    Attributes:
        command: returns module or script, and flags, from folder of inputs and output.
        earlier: flags of a run that leaves another result; None: an earlier result is refused.
        overwrite: flags that replace an earlier result.
        again: flags of a repeated command.
        is_compared: whether a file of the output is the same in each run, by its relative path.
        has_parts: new parts are published before the result, and old ones removed after it.
    """

    command: Callable[[Path, Path], list[object]]
    earlier: tuple[str, ...] | None = None
    overwrite: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    is_compared: Callable[[str], bool] = lambda name: True
    has_parts: bool = False


TRAINING = (
    *("--preset=terabyte", "--batch_size=256", "--embedding_dim=8", "--top_mlp_dims=16,1", "--cpu"),
    *("--bottom_mlp_dims=16,8", "--optimizer=adagrad", "--print_freq=4", "--warmup_steps=1"),
    *("--decay_steps=0", "--seed=1", "--max_steps=12"),
)


def training(inputs: Path, output: Path) -> list[object]:
    paths = [f"--dataset_path={inputs / 'clicks'}", f"--save_checkpoint_path={output}"]
    logs = f"--run_dir={output.with_name('run')}"
    return ["dlrm.py", *TRAINING, *paths, logs, "--checkpoint_every=3"]


OVERWRITE = ("--overwrite",)
TOOLS = {
    "criteo": Tool(
        lambda inputs, output: [
            *("preproc.criteo", "--input", inputs / "logs", "--output", output, "--threads", 1)
        ],
        ("--frequency_threshold", "3"),
        OVERWRITE,
    ),
    "multi_hot": Tool(
        lambda inputs, output: [
            *("preproc.criteo.multi_hot", "--input", inputs / "criteo", "--output", output),
            *("--processes", 1, "--hotness", 2),
        ],
        ("--hotness", "3"),
        OVERWRITE,
    ),
    "amazon_books": Tool(
        lambda inputs, output: [
            *("preproc.amazon_books", "--amazon_dataset_path", inputs / "reviews"),
            *("--output_path", output, "--min_events", 5),
        ]
    ),
    "tfrecords": Tool(
        lambda inputs, output: [
            *("preproc.amazon_books.parquet_to_tfrecord", "--tfrecord_output_dir", output),
            *("--amazon_dataset_path", inputs / "histories"),
        ]
    ),
    "movielens": Tool(
        lambda inputs, output: [
            *("preproc.movielens", "--input", inputs / "ratings.csv", "--output", output),
            *("--min_ratings", 2, "--valid_negative", 20),
        ],
        ("--min_ratings", "3"),
        OVERWRITE,
    ),
    "transcode": Tool(
        lambda inputs, output: [
            *("preproc.transcode", "--input", inputs / "rows.csv", "--output", output),
            *("--label", "clicked", "--categorify", "shop"),
        ],
        ("--frequency_threshold", "3"),
        OVERWRITE,
    ),
    "synthetic": Tool(
        lambda inputs, output: [
            *("dataloading.synthetic", "--output", output, "--rows", 2000, "--cardinalities", 9)
        ]
    ),
    "training": Tool(
        training,
        again=("--resume=auto",),
        # The other files have times and speeds.
        is_compared=lambda name: "step-12/" in name and name.endswith(".npy"),
    ),
    "checkpoint_export": Tool(
        lambda inputs, output: [
            *("runtime.checkpoint", "export", inputs / "model", "--output", output)
        ]
    ),
    "saved_model": Tool(
        lambda inputs, output: [
            *("deployment.export", "--checkpoint_dir", inputs / "model", "--output", output),
            *("--dataset_path", inputs / "clicks"),
        ],
        is_compared=lambda name: name.startswith("variables"),
    ),
    "deploy": Tool(
        lambda inputs, output: [
            *("deployment.deploy", "--checkpoint_dir", inputs / "model", "--backend", "local"),
            *("--model_repository", output, "--dataset_path", inputs / "clicks"),
        ],
        ("--quantize_tables", "int8"),
        OVERWRITE,
        # Names of nodes differ.
        is_compared=lambda name: not name.endswith((".onnx", "checksums.json")),
        has_parts=True,
    ),
    "search": Tool(
        lambda inputs, output: [
            *("recipes.search", "dlrm", "--study", output.name),
            *("--storage", output.with_name("study.db"), "--trials", 1),
            *("--param", "learning_rate=choice:0.05,0.1", "--", *TRAINING),
            *("--dataset_path", inputs / "clicks", "--evals_per_epoch", 1),
        ],
        is_compared=lambda name: False,
    ),
}
# Names that a tool might take for its own.
FOREIGN = {
    "{0}.partial/state.json": "{}",
    "{0}.partial/data/day_1": "1",
    "{0}.checkpoint/00001-step-4/weights": "2",
    "{0}.temp/notes": "3",
    "{0}.binaries/a.bin": "4",
    ".{0}.preparing": "{parent}/precious",
    "precious/thesis.tex": "5",
    "scratch/notes": "6",
    "lock": "7",
}


@pytest.fixture(scope="module")
def run(forked_python, root):
    """Runs a program of the tool until its end, or until it is killed at a moment."""

    def run(command, folder: Path, kind="none", value=0):
        counts = folder / "changes.txt"
        counts.unlink(missing_ok=True)
        words = ["-c", PROGRAM, folder, kind, value, counts, *command]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = run_forked(forked_python, [*map(str, words)], str(root), environment, 300)
        # A kill while it is written leaves it empty.
        num_changes = int(counts.read_text() or 0) if counts.exists() else 0
        return done, num_changes

    return run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, run_script):
    """Inputs of the tools."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "logs").mkdir()
    for day in range(2):
        generate_day(folder / f"logs/day_{day}", 300, [8, day])
    draw = random.Random(1)
    rows = [
        f"{draw.randint(0, 1)},shop {draw.randint(0, 99)},{draw.random()}\n" for _ in range(500)
    ]
    (folder / "rows.csv").write_text("clicked,shop,price\n" + "".join(rows))
    for command in (
        ("-m", "preproc.criteo", "--input", folder / "logs", "--output", folder / "criteo"),
        *(
            ("-m", f"preproc.{name}", *flags)
            for name, *flags in (
                ("amazon_books.generate_reviews", "--output", folder / "reviews")
                + ("--reviews", 2000, "--users", 100, "--items", 50),
                ("amazon_books", "--amazon_dataset_path", folder / "reviews")
                + ("--output_path", folder / "histories", "--min_events", 5),
                ("movielens.generate_ratings", "--output", folder / "ratings.csv")
                + ("--users", 100, "--movies", 60, "--ratings", 2000),
            )
        ),
        ("-m", "dataloading.synthetic", "--output", folder / "clicks", "--rows", 6000)
        + ("--validation_rows", 500, "--cardinalities", "100,70,5"),
        ("dlrm.py", *TRAINING, f"--dataset_path={folder / 'clicks'}")
        + (f"--save_checkpoint_path={folder / 'model'}", f"--run_dir={folder / 'run'}"),
    ):
        done = run_script(*command)
        assert done.returncode == 0, done.stderr
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Files and links below a folder by their relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MARKER
    }


def write_foreign(output: Path, draw: random.Random) -> dict[Path, bytes]:
    """Writes some of the foreign files next to an output; returns their contents."""
    files = {}
    for name in draw.sample(sorted(FOREIGN), draw.randint(1, len(FOREIGN))):
        path = output.parent / name.format(output.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FOREIGN[name].replace("{parent}", str(output.parent)))
        files[path] = path.read_bytes()
    return files


# A search starts processes for minutes; its workers and storage have tests of their own.
@pytest.mark.quick("[!s]*", "s[!e]*")
@pytest.mark.parametrize("name", TOOLS)
def test_killed(name, request, inputs, run, tmp_path):
    tool, draw = TOOLS[name], random.Random(name)

    def compared(output):
        files = contents(output) if output.exists() else {}
        return {name: data for name, data in files.items() if tool.is_compared(name)}

    def succeed(output, *flags):
        done, num_changes = run([*tool.command(inputs, output), *flags], output.parent)
        assert done.returncode == 0, done.stderr
        return num_changes

    (tmp_path / "new").mkdir()
    started = time.monotonic()
    num_changes = succeed(tmp_path / "new/out")
    seconds = time.monotonic() - started
    new = compared(tmp_path / "new/out")
    assert num_changes > 1 and bool(new) == (name != "search")
    earlier = {}
    if tool.earlier is not None:
        (tmp_path / "earlier").mkdir()
        succeed(tmp_path / "earlier/out", *tool.earlier)
        earlier = compared(tmp_path / "earlier/out")
        assert earlier != new
    is_long = request.config.getoption("--long")
    for trial in range(50 if is_long else 1):
        output = tmp_path / f"trial-{trial}/out"
        output.parent.mkdir()
        foreign = write_foreign(output, draw)
        previous, flags = {}, []
        if earlier and (not is_long or draw.random() < 0.5):
            shutil.copytree(tmp_path / "earlier/out", output)
            previous, flags = earlier, [*tool.overwrite]
        kind, value = "change", draw.randint(1, num_changes)
        if draw.random() < 0.3:
            kind, value = "seconds", draw.uniform(0, seconds)
        moment = f"{kind} {value} of {num_changes}, {seconds:.1f} s; previous: {bool(previous)}"
        command = [*tool.command(inputs, output), *flags]
        done, _ = run(command, output.parent, kind, value)
        assert done.returncode in (-signal.SIGKILL, 0), f"{moment}: {done.stderr}"
        assert {path: path.read_bytes() for path in foreign} == foreign, moment
        left = compared(output)
        if name not in ("training", "search"):
            is_whole = left in (previous, new)
            if tool.has_parts:
                is_whole = any(result.items() <= left.items() for result in (previous, new))
                is_whole &= left.items() <= previous.items() | new.items()
            assert is_whole, moment
        if left != new or name in ("training", "search"):
            done, _ = run([*command, *tool.again], output.parent)
            assert done.returncode == 0, f"{moment}: {done.stderr}"
            hidden = set()
        else:  # what the next run for this output removes
            folders = [path for path in output.parent.glob(".*") if path.is_dir()]
            hidden = {f.name for f in folders if (f / MARKER).exists() or not any(f.iterdir())}
        assert compared(output) == new, moment
        assert {path: path.read_bytes() for path in foreign} == foreign, moment
        (output.parent / "changes.txt").unlink(missing_ok=True)
        known = {"out", "run", "study.db", "study.db.lock", "study.db.trials", "out.flags"}
        known |= {path.relative_to(output.parent).parts[0] for path in foreign}
        assert {path.name for path in output.parent.iterdir()} <= known | hidden, moment
        shutil.rmtree(output.parent)
