"""A full disk during a save: the old checkpoints stay complete, and the training reports it.

The disk is a small tmpfs, which needs root: without, these tests are skipped.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from runtime import checkpoint
from runtime.checkpoint import Folder
from runtime.checkpoint.reader import verify
from runtime.checkpoint.saver import Saver
from tests.ranks import paced_training
from tests.ranks.conftest import run_ranks, run_recipes
from tests.runtime.checkpoint.array_weights import ArrayWeight, check_whole, left_over, on_ranks

__all__ = ["run_ranks", "run_recipes"]

PAGE = os.sysconf("SC_PAGE_SIZE")


class Disk:
    """A file system of `size_bytes` at `path`, of which a file can take the free space."""

    def __init__(self, path: Path, size_bytes: int):
        self.path, self._filler = path, path / "filler"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")

    def leave(self, free_bytes: int) -> None:
        """Takes all space but so much."""
        self.free()
        disk = os.statvfs(self.path)
        with open(self._filler, "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, disk.f_bavail * disk.f_frsize - free_bytes)

    def free(self) -> None:
        """Gives it back."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """At once, even where a process still has files open."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def mount(tmp_path):
    """`mount(size_bytes)` gives a `Disk`."""
    disks = []

    def make(size_bytes: int) -> Disk:
        disks.append(Disk(tmp_path / f"disk {len(disks)}", size_bytes))
        return disks[-1]

    yield make
    for disk in disks:
        disk.unmount()


def weights(step: int, rank: int = 0, ranks: int = 1) -> list[ArrayWeight]:
    """Weights of some pages each, as they are after a step; each is whole on one rank."""
    created = []
    for number, name in enumerate(("dense/a", "sparse/a", "sparse/b", "sparse.state/a")):
        values = np.full((100, 40), number + 10 * step, np.float32)
        cuts = [[] for _ in range(ranks)]
        cuts[number % ranks] = [checkpoint.matrix_of(values.shape)]
        created.append(ArrayWeight(name, values, cuts, rank))
    return created


@pytest.mark.parametrize("ranks", [1, 2])
def test_sweep_of_free_space(mount, ranks):
    """From none to enough, page by page: one saver of one training continues through all of it."""
    disk = mount(160 * PAGE)
    root = disk.path / "checkpoints"

    def train(world):
        folder = Folder(root)
        if world.is_chief:
            folder.acquire()
        saver = Saver(folder, world, keep=1)
        faults = []
        step = 0
        while len(faults) < 2 or faults[-1] is not None:
            step += 1
            if world.is_chief and step > 1:
                disk.leave((step - 2) * PAGE)
            saver.save(step, weights(step, world.rank, ranks), {"recipe": "test"}, {"step": step})
            saver.wait()
            (outcome,) = saver.outcomes()
            faults.append(outcome.fault)
            if world.is_chief:
                expected = step if outcome.fault is None else 1
                assert check_whole(root, weights) == [expected], (step, outcome)
                assert left_over(root) == []
        return faults

    results = on_ranks(ranks, train)
    for faults in results:
        assert not isinstance(faults, Exception), faults
        assert faults[0] is None and faults[-1] is None
        assert 15 < len(faults) < 40, "the limit came in the middle of saves"
        for kind, text in faults[1:-1]:
            assert kind == "error"
            assert text == (
                f"--save_checkpoint_path {root}: No space left on device; the model was not saved"
            )


# Trainings. A checkpoint is of 3.9 MiB.

SMALL = (
    *("--embedding_dim", "16", "--bottom_mlp_dims", "16", "--top_mlp_dims", "1"),
    "--preset=terabyte",
    *("--batch_size", "100", "--evals_per_epoch", "0", "--warmup_steps", "0", "--decay_steps", "0"),
    *("--seed", "1", "--optimizer", "adam", "--learning_rate", "0.01", "--deterministic"),
    *("--epochs", "5", "--checkpoint_every", "3", "--keep_checkpoints", "1"),
)
STEPS = 100
CHECKPOINT_BYTES = 20_000 * 16 * 4 * 3
NO_SPACE = r"--save_checkpoint_path \S+: No space left on device; the model was not saved"


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """2,000 rows and a table of 20,000."""
    folder = tmp_path_factory.mktemp("rows")
    write_dataset(folder, synthetic_spec([20_000, 9]), {"train": 2000, "validation": 10})
    return folder


def command(rows: Path, folder: Path, *flags: str) -> list[str]:
    """A training that saves in `folder` and has its log next to the disk."""
    where = ("--save_checkpoint_path", str(folder), "--run_dir", f"{folder.parent} run")
    return [sys.executable, "dlrm.py", "--dataset_path", str(rows), *SMALL, *where, *flags]


@pytest.fixture(scope="module")
def undisturbed(rows, run_script, tmp_path_factory) -> dict[str, np.ndarray]:
    """The arrays after a training with enough space."""
    folder = tmp_path_factory.mktemp("undisturbed") / "checkpoints"
    done = run_script(*command(rows, folder)[1:])
    assert done.returncode == 0, done.stderr
    return arrays_of_last(folder)


def arrays_of_last(folder: Path) -> dict[str, np.ndarray]:
    """Arrays of the checkpoint of the last step, all of it checked."""
    path = Folder(folder).newest().path
    assert path.name.endswith(f"-step-{STEPS}")
    assert {fault for _, fault in verify(path)} == {None}
    return {str(f.relative_to(path)): np.load(f) for f in sorted(path.rglob("*.npy"))}


def check_same(arrays: dict, expected: dict) -> None:
    """Bit for bit."""
    assert list(arrays) == list(expected)
    for name, values in expected.items():
        assert arrays[name].tobytes() == values.tobytes(), name


def messages(run_dir: str) -> list[str]:
    """Messages of the log."""
    text = Path(f"{run_dir}/log.json").read_text()
    lines = [json.loads(line.removeprefix("DLLL ")) for line in text.splitlines()]
    return [line["data"]["message"] for line in lines if line.get("step") == "MESSAGE"]


@pytest.mark.long
def test_space_that_returns(mount, rows, root, undisturbed):
    """--on_checkpoint_error continue; files are deleted after the first failure."""
    disk = mount(12 * 2**20)
    disk.leave(CHECKPOINT_BYTES * 3 // 2)
    folder = disk.path / "checkpoints"
    slow = folder.parent.with_name("slow")  # until there is space again
    slow.touch()
    python, _, *flags = command(rows, folder)
    with subprocess.Popen(
        [python, "-m", paced_training.__name__, *flags],
        cwd=root,
        env={**os.environ, "PACED_BY": str(slow)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in process.stdout:
                if "warning: " in line and "checkpoint of step" in line:
                    (older,) = Folder(folder).list()
                    assert {fault for _, fault in verify(older.path)} == {None}
                    disk.free()
                    slow.unlink(missing_ok=True)
            _, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    printed = messages(f"{disk.path} run")
    kinds = [text.split()[0] for text in printed if text.startswith(("saved", "warning:"))]
    kinds = [kind for kind, _ in itertools.groupby(kinds)]
    assert kinds == ["saved", "warning:", "saved"], printed
    assert re.search(
        rf"warning: (the )?checkpoint of step 6 failed: {NO_SPACE}; the last checkpoint is "
        r"\S+/00001-step-3. Training continues \(--on_checkpoint_error continue\)",
        "\n".join(printed).replace(str(disk.path), "DISK"),
    ), printed
    assert left_over(folder) == []
    check_same(arrays_of_last(folder), undisturbed)


def check_only(folder: Path, step: int) -> None:
    """One checkpoint, which is whole."""
    (only,) = Folder(folder).list()
    assert only.step == step
    assert {fault for _, fault in verify(only.path)} == {None}
    assert left_over(folder) == []


@pytest.mark.long
def test_two_ranks(mount, rows, run_recipes):
    """Both ranks receive the error, one prints it."""
    folders = {}
    for mode in ("continue", "stop"):
        disk = mount(12 * 2**20)
        disk.leave(CHECKPOINT_BYTES * 3 // 2)
        folders[mode] = disk.path / "checkpoints"
    flags = ("--max_steps", "20", "--on_checkpoint_error")
    commands = {mode: command(rows, folder, *flags, mode)[1:] for mode, folder in folders.items()}
    run = run_recipes(2, commands, check=False)
    for mode, folder in folders.items():
        assert run.codes[mode] == [2, 2], run.outputs[mode]
        printed = [line for text in run.outputs[mode] for line in text.splitlines()]
        errors = [line for line in printed if "dlrm: error" in line]
        step = 20 if mode == "continue" else 6
        assert len(errors) == 1 and f"checkpoint of step {step} failed" in errors[0], printed
        assert "No space left on device" in errors[0]
        check_only(folder, 3)
        with_folder = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in str(p.info)]
        assert with_folder == []
    assert "exit with status code 2" in run.output


# Memory.


@pytest.mark.long
@pytest.mark.parametrize("slices", [1, 4])
def test_memory_of_saving_and_restoring(tmp_path, run_script, slices):
    """A table of 1.5 GiB costs at most 256 MiB in addition to itself."""
    worker = "tests.runtime.checkpoint.save_memory_worker"
    done = run_script("-m", worker, tmp_path, slices, timeout=500)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout.splitlines()[-1])
    assert grown["table_mib"] == 1536
    assert 1 < grown["saving_mib"] <= 256, grown
    assert 1 < grown["restoring_mib"] <= 256, grown
