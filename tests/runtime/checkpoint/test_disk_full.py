"""A full disk during a save: the old checkpoints stay complete, and the training reports it.

The disk is a small tmpfs, which needs root: without, these tests are skipped.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from runtime import checkpoint
from runtime.checkpoint import Folder
from runtime.checkpoint.reader import verify
from runtime.checkpoint.saver import Saver
from tests.ranks.conftest import quick_python, run_ranks, run_recipes
from tests.runtime.checkpoint.array_weights import ArrayWeight, check_whole, left_over, on_ranks

__all__ = ["quick_python", "run_ranks", "run_recipes"]

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


SMALL = (
    *("--embedding_dim", "16", "--bottom_mlp_dims", "16", "--top_mlp_dims", "1"),
    "--preset=terabyte",
    *("--batch_size", "100", "--evals_per_epoch", "0", "--warmup_steps", "0", "--decay_steps", "0"),
    *("--optimizer", "adam", "--epochs", "5", "--checkpoint_every", "3", "--max_steps", "20"),
)


@pytest.mark.long
def test_two_ranks(mount, tmp_path, run_recipes):
    """Both ranks receive the error, one prints it; the older checkpoint stays complete."""
    rows, num_ids = tmp_path / "rows", 20_000
    write_dataset(rows, synthetic_spec([num_ids, 9]), {"train": 2000, "validation": 10})
    folders, commands = {}, {}
    for mode in ("continue", "stop"):
        disk = mount(12 * 2**20)
        disk.leave(num_ids * 16 * 4 * 3 * 3 // 2)  # one and a half checkpoints with Adam's state
        folders[mode] = disk.path / "checkpoints"
        where = ("--save_checkpoint_path", folders[mode], "--run_dir", f"{disk.path} run")
        flags = ("dlrm.py", "--dataset_path", rows, *SMALL, "--on_checkpoint_error", mode, *where)
        commands[mode] = [*map(str, flags)]
    run = run_recipes(2, commands, check=False)
    for mode, folder in folders.items():
        assert run.codes[mode] == [2, 2], run.outputs[mode]
        printed = [line for text in run.outputs[mode] for line in text.splitlines()]
        errors = [line for line in printed if "dlrm: error" in line]
        step = 20 if mode == "continue" else 6
        assert len(errors) == 1 and f"checkpoint of step {step} failed" in errors[0], printed
        assert "No space left on device" in errors[0]
        (only,) = Folder(folder).list()
        assert only.step == 3 and {fault for _, fault in verify(only.path)} == {None}
        assert left_over(folder) == []
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
