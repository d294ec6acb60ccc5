"""The toolkit with other Pythons and TensorFlows than those of .venv: `make test-platforms`.

A copy of the working tree gets an environment of its own by `make setup`. There the demo runs, and
a short training of every recipe, also on two ranks. Checkpoints of .venv are resumed there, and the
other way round, and a model is deployed by both. A table at the end has the figures; the exit
status is 1 if one of them is out of its bounds.
"""

import argparse
import functools
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

import setup_environment
from benchmarks.harness.result_page import table
from tests import sequence_data, tastes
from tests.training import test_golden_losses as golden

ROOT = Path(__file__).resolve().parents[2]
FLOOR_LOCK = "requirements/floor.lock"
LOG = ROOT / "runs/platforms.log"  # of a command that failed
BEST_DEMO_AUC = 0.82018  # of the generated clicks
DEMO_AUC_TOLERANCE = 0.006
# Relative difference of losses between versions of TensorFlow, whose kernels round differently.
LOSS_TOLERANCE = 1e-6
SCORE_TOLERANCE = 1e-6
STEPS, SAVED_STEP = 20, 10


class Run(NamedTuple):
    """A short training of a recipe; its log has a loss per step."""

    script: str
    flags: Sequence[str]
    loss: str  # name of the training loss in the log
    evaluation: str  # name of the loss of the evaluation
    data: str = ""  # folder of the samples below the data folder; generated while training if ""


RUNS = {
    "dlrm": Run("dlrm.py", (*golden.FLAGS, *golden.RUNS["dlrm_adagrad"][1]), "loss", "log_loss"),
    "dcnv2": Run(
        "dcnv2.py", (*golden.FLAGS, *golden.RUNS["dcnv2_lazy_adam"][1]), "loss", "log_loss"
    ),
    "sim": Run(
        "sim.py",
        (*golden.SEQUENTIAL_FLAGS, *golden.SEQUENTIAL_RUNS["sim"]),
        *("total_loss", "test_loss", "histories"),
    ),
    "ncf": Run("ncf.py", tuple(golden.COLLABORATIVE_FLAGS), *("loss", "test_loss", "interactions")),
}


class Environment:
    """A tree with a `.venv`, in which commands run."""

    def __init__(self, root: Path, data: Path, folder: Path):
        self.root, self._data, self._folder = root, data, folder
        self._folder.mkdir(parents=True)
        self._losses = {}

    def run(self, command: Sequence[str]) -> str:
        """Returns the output of a command.

        Raises:
            RuntimeError: it failed; the message ends with the end of its output, `LOG` has all.
        """
        path = f"{self.root / '.venv/bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            list(command),
            cwd=self.root,
            env={**os.environ, "PATH": path, "MAKEFLAGS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            LOG.parent.mkdir(exist_ok=True)
            LOG.write_text(done.stdout)
            end = done.stdout[-4000:]
            raise RuntimeError(f"{' '.join(command)} failed, its output is in {LOG}:\n{end}")
        return done.stdout

    def versions(self) -> dict[str, str]:
        """Returns the versions of Python and TensorFlow."""
        script = "import json; from runtime.hardware.device import describe; "
        script += "print(json.dumps(describe()))"
        return json.loads(self.run(["python", "-c", script]).splitlines()[-1])

    def train(
        self, name: str, run_name: str, launcher: Sequence[str] = (), resume: Path | None = None
    ) -> list[float]:
        """Trains a recipe for 20 steps; returns the loss of each and of the evaluation.

        Args:
            name: key of `RUNS`.
            run_name: folder of the run; its checkpoints are in `checkpoint`.
            launcher: words before `python`.
            resume: checkpoint to resume.
        """
        run, folder = RUNS[name], self.run_folder(name, run_name)
        command = [*launcher, "python", run.script, *run.flags, f"--run_dir={folder}", "--cpu"]
        if run.data:
            command.append(f"--dataset_path={self._data / run.data}")
        if resume:
            command.append(f"--resume={resume}")
        elif not launcher:
            command += [f"--save_checkpoint_path={folder / 'checkpoint'}", "--keep_checkpoints=5"]
            command.append(f"--checkpoint_every={SAVED_STEP}")
        self.run(command)
        return golden.losses_of(folder, run.loss, run.evaluation)

    def whole_losses(self, name: str) -> list[float]:
        """Returns the losses of a recipe's training, which runs once."""
        if name not in self._losses:
            self._losses[name] = self.train(name, "whole")
        return self._losses[name]

    def run_folder(self, name: str, run_name: str) -> Path:
        """Returns the folder of a run."""
        return self._folder / f"{name}_{run_name}"

    def checkpoint(self, name: str) -> Path:
        """Returns the checkpoint after step 10 of a recipe's training."""
        folder = self.run_folder(name, "whole") / "checkpoint"
        (checkpoint,) = folder.glob(f"*-step-{SAVED_STEP}")
        return checkpoint

    def scores(self, checkpoint: Path, rows: Path) -> np.ndarray:
        """Deploys a model and returns its scores of the test rows, float32 [rows]."""
        models, output = self._folder / "models", self._folder / "scores.npy"
        shutil.rmtree(models, ignore_errors=True)
        deploy = ["python", "-m", "deployment.deploy", "--checkpoint_dir", str(checkpoint)]
        deploy += ["--model_repository", str(models), "--model_name", "demo", "--monolithic"]
        deploy += ["--dataset_path", str(rows)]
        self.run(deploy)
        predict = ["python", "-m", "deployment.predict", "--model", str(models)]
        predict += ["--input", str(rows), "--mapping", "test", "--output", str(output)]
        self.run(predict)
        return np.load(output)


class Report(NamedTuple):
    """The row of a platform in the table, and what was out of its bounds."""

    cells: dict[str, str]
    failures: list[str]


def difference(values: Sequence[float], expected: Sequence[float]) -> float:
    """Returns the largest relative difference."""
    return float(np.max(np.abs(np.subtract(values, expected)) / np.abs(expected)))


def compare_trainings(here: Environment, there: Environment, name: str) -> tuple[float, float]:
    """Returns differences of the losses of a recipe: of whole trainings, and of resumed ones."""
    expected, losses = here.whole_losses(name), there.whole_losses(name)
    after = there.train(name, "resumed", resume=here.checkpoint(name))
    back = here.train(name, f"from_{there.root.name}", resume=there.checkpoint(name))
    resumed = max(
        difference(after[:-1], expected[SAVED_STEP:-1]),
        difference(back[:-1], losses[SAVED_STEP:-1]),
    )
    return difference(losses[:-1], expected[:-1]), resumed


def copy_tree(folder: Path) -> None:
    """Copies the files that git tracks or would add, into a repository of their own."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "copy"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def check(
    here: Environment, there: Environment, python: str, lock: str, args: argparse.Namespace
) -> Report:
    """Sets up a platform and compares it with the environment of this process."""
    cells, failures = {}, []

    def judge(name: str, text: str, is_met: bool) -> None:
        cells[name] = text
        print(f"  {name}: {text}{'' if is_met else ' FAILED'}", flush=True)
        if not is_met:
            failures.append(f"{name}: {text}")

    def seconds(command: Sequence[str]) -> tuple[str, float]:
        start = time.monotonic()
        return there.run(command), time.monotonic() - start

    flags = [f"PYTHON={python}", f"LOCK={lock}", "ENGINES=no", *op_choice(lock)]
    flags += [] if args.ranks else ["HOROVOD=no"]
    cells["set-up, s"] = f"{seconds(['make', 'setup', *flags])[1]:.0f}"
    versions = there.versions()
    print(f"  Python {versions['python']}, TensorFlow {versions['tensorflow']}", flush=True)
    output, elapsed_s = seconds(["make", "demo", *flags])
    auc = float(re.findall(r"^auc +\S+ +([\d.]+)", output, re.MULTILINE)[-1])  # of test
    is_near = BEST_DEMO_AUC - DEMO_AUC_TOLERANCE < auc < BEST_DEMO_AUC
    judge("demo AUC", f"{auc:.5f} in {elapsed_s:.0f} s", is_near)

    with ThreadPoolExecutor(max_workers=2) as pool:  # most of a short training is its start
        compared = list(pool.map(functools.partial(compare_trainings, here, there), RUNS))
    whole, resumed = map(max, zip(*compared, strict=True))
    judge("losses of 20 steps differ by", f"{whole:.1e}", whole < LOSS_TOLERANCE)
    judge("after resuming by", f"{resumed:.1e}", resumed < LOSS_TOLERANCE)

    scores = [
        environment.scores(there.root / "runs/demo/checkpoint", there.root / "data/demo")
        for environment in (here, there)
    ]
    gap = float(np.max(np.abs(scores[0] - scores[1])))
    judge("served scores by", f"{gap:.1e}", gap < SCORE_TOLERANCE)

    if args.ranks:
        for launcher in ("horovodrun -np 2", "mpirun --allow-run-as-root --oversubscribe -np 2"):
            program = launcher.split()[0]
            if shutil.which("mpirun") or program != "mpirun":
                trained = [there.train(name, program, launcher.split()) for name in RUNS]
                fell = [losses[-2] < losses[0] for losses in trained]
                judge(program, f"{sum(fell)} of {len(fell)} recipes", all(fell))
    if args.tests:
        cells["tests"] = there.run(["make", "test", *flags]).splitlines()[-1].strip("= ")
    name = f"Python {versions['python']}, TensorFlow {versions['tensorflow']}"
    return Report({"platform": name, **cells}, [f"{name}: {text}" for text in failures])


def op_choice(lock: str) -> list[str]:
    """Returns the flags of make for the compiled ops.

    With the TensorFlow of .venv they are those of its own build, whose wheels are in the cache.
    """
    stamp = ROOT / ".venv/op"  # absent without a compiler
    if lock != setup_environment.BASE_LOCK or not stamp.exists():
        return ["CUDA=0"]
    cuda, *architectures = stamp.read_text().split()
    chosen = [f"CUDA_ARCHITECTURES={' '.join(architectures)}"] if architectures else []
    return [f"CUDA={cuda}", *chosen]


def find_pythons() -> dict[str, str]:
    """Returns the Pythons of the lock that are on the PATH or in pyenv's folder, by version."""
    versions = setup_environment.supported_versions(ROOT / setup_environment.BASE_LOCK)
    home = pwd.getpwuid(os.getuid()).pw_dir  # also where HOME is that of a test
    pyenv = Path(os.environ.get("PYENV_ROOT", f"{home}/.pyenv"))
    pythons = {}
    for version in map(setup_environment.dotted, versions):
        name = f"python{version}"
        installed = sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"), reverse=True)
        paths = [shutil.which(name), *installed]
        usable = [path for path in paths if path and setup_environment.describe(str(path))]
        if usable:
            pythons[version] = str(usable[0])
    return pythons


def platforms_of(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns the Python and the lock of each platform to check.

    Raises:
        SystemExit: none of them is on this machine; with status 0 for `newest`, which CI runs.
    """
    pythons = find_pythons()
    floor = [(pythons["3.10"], FLOOR_LOCK)] if "3.10" in pythons else []
    if args.only == "floor":
        platforms = floor
    else:
        own = setup_environment.dotted(sys.version_info[:2])
        others = [python for version, python in pythons.items() if version != own]
        platforms = [(python, setup_environment.BASE_LOCK) for python in others]
        platforms = platforms[:1] if args.only == "newest" else [*platforms, *floor]
    if not platforms:
        print(f"platforms: nothing to compare with: there are {', '.join(pythons.values())}")
        sys.exit(0 if args.only == "newest" else 1)
    return platforms


def main() -> int:
    """Checks the platforms of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        choices=("newest", "floor"),
        help="the newest other Python, or the oldest versions",
    )
    parser.add_argument("--tests", action="store_true", help="run `make test` there too")
    parser.add_argument("--no_ranks", dest="ranks", action="store_false", help="no Horovod")
    args = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "data")
        sequence_data.write(data / "histories", STEPS * 32)
        tastes.write(data / "interactions")
        here = Environment(ROOT, data, Path(name, "runs"))
        for number, (python, lock) in enumerate(platforms_of(args)):
            print(f"{python}, {lock}", flush=True)
            root = Path(name, f"platform {number}")
            copy_tree(root)
            there = Environment(root, data, Path(name, f"runs {number}"))
            try:
                reports.append(check(here, there, python, lock, args))
            except RuntimeError as error:
                print(error, flush=True)
                reports.append(Report({"platform": python}, [f"{python}: {error}"[:200]]))
            shutil.rmtree(root)
    names = list(dict.fromkeys(name for report in reports for name in report.cells))
    rows = [[report.cells.get(name, "") for name in names] for report in reports]
    print(*table(names, rows), sep="\n")
    failures = [text for report in reports for text in report.failures]
    print("".join(f"FAILED {text}\n" for text in failures), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
