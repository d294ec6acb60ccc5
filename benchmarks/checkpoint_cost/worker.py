"""A training of `checkpoint_cost`: the recipe `dlrm.py`, with and without saving, on request."""

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import xxhash

from benchmarks.dlrm_training.recipe import DLRMTraining, configure
from benchmarks.harness import machine
from benchmarks.harness.worker import serve
from runtime.checkpoint import Folder, files
from runtime.checkpoint.disk import Disk, aligned_copy
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.checkpoint.weight import BLOCK_BYTES
from runtime.cluster.distributed import World
from runtime.cluster.signals import StopSignal
from runtime.hardware import device
from training.checkpoints import describe_training, training_weights
from training.state import Position

# What a save is made of, in its order; see `parts_s`.
COPY, CHECK = "copy out of the tables", "finite check"
ALIGN, CHECKSUM = "copy to an aligned buffer", "checksum"
WRITE = "write, past the page cache"
SYNC, DELETE = "wait for the disk (fsync)", "delete the oldest checkpoint"
PARTS = (COPY, CHECK, ALIGN, CHECKSUM, WRITE, SYNC, DELETE)


class SavedTraining:
    """One training, whose turns have checkpoints or not, as training/loop.py has them.

    Args:
        config: the flags; the checkpoints' are the defaults, but that a fault ends the benchmark.
        folder: of the checkpoints.
    """

    def __init__(self, config, folder: Folder):
        self._training = training = DLRMTraining(config)
        self._description = describe_training(config, training.recipe, training.spec.fingerprint())
        self._saved_at = 0.0  # when the training's log reported a saved checkpoint
        log = SimpleNamespace(message=self._note)
        world, signals = World(), StopSignal()
        self._policy = CheckpointPolicy(config.checkpoint, folder, world, log, signals)
        self._no_policy = CheckpointPolicy(config.checkpoint, None, world, log, signals)

    def _note(self, text: str) -> None:
        self._saved_at = time.perf_counter()

    def weights(self) -> list:
        """All weights to save."""
        return training_weights(self._training.recipe)

    def warm_up(self, steps: int, saves: int) -> float:
        """Steps, as many again, and saves; MiB of memory that the second half of the steps takes.

        With --keep_checkpoints 2 it takes two saves until every further one deletes another.
        """
        self._steps(steps, self._no_policy)
        machine.reset_peak_memory()
        self._steps(steps, self._no_policy)
        peak_mib = machine.peak_memory_mib()
        for _ in range(saves):
            self._begin_save()
            self._steps(1, self._policy)
            self._policy.finish()
        return peak_mib

    def turn(self, saving: bool, steps: int) -> dict:
        """A save, if `saving`, and the steps that follow it until the next one is due.

        A save that is not on the disk after the last step is waited for: the next one would.
        """
        policy = self._policy if saving else self._no_policy
        machine.reset_peak_memory()
        begin = time.perf_counter()
        if saving:
            self._begin_save()
        copied = time.perf_counter()
        steps_s = self._steps(steps, policy)
        stepped = time.perf_counter()
        policy.finish()
        end = time.perf_counter()
        turn = {"turn_s": end - begin, "peak_mib": machine.peak_memory_mib(), "steps_s": steps_s}
        if saving:
            turn |= {"copy_s": copied - begin, "rest_s": end - stepped}
            turn["disk_s"] = self._saved_at - begin
        return turn

    def _begin_save(self) -> None:
        trainer = self._training.trainer
        at = Position(step=int(trainer.step), trainer=trainer.state())
        state = at.to_json(self._training.recipe.goal)
        self._policy.save(at.step, self.weights(), self._description, state)

    def _steps(self, count: int, policy: CheckpointPolicy) -> list[float]:
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self._training.step()
            policy.tick()
            seconds.append(time.perf_counter() - begin)
        return seconds


def parts_s(weights, folder: Path) -> dict[str, float]:
    """Seconds of the parts of one save, each alone: one thread, nothing is trained."""
    seconds: dict[str, float] = defaultdict(float)

    def timed(part: str, call, *arguments):
        begin = time.perf_counter()
        result = call(*arguments)
        seconds[part] += time.perf_counter() - begin
        return result

    def copies(weight, box):
        for block in box.blocks(files.rows_of_block(box.columns, weight.dtype)):
            values = timed(COPY, weight.read, block)
            assert timed(CHECK, lambda values=values: np.isfinite(values).all())
            copied = timed(ALIGN, aligned_copy, values)
            timed(CHECKSUM, files.checksum, copied[: values.nbytes])
            begin = time.perf_counter()
            yield copied, values.nbytes
            seconds[WRITE] += time.perf_counter() - begin

    written, disk = [], Disk()
    for weight in weights:
        weight.prepare()
        for box in weight.saved_by(0):
            path = folder / f"{len(written)}.part"
            written.append(path)
            is_large = box.size * weight.dtype.itemsize >= BLOCK_BYTES
            disk.write(path, copies(weight, box), is_large)
    for path in written:  # as in a save, after all were written
        timed(SYNC, _sync, path)
    for path in written:
        timed(DELETE, path.unlink)
    return dict(seconds)


def _sync(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset_path", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="new; for the checkpoints")
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    folder = Folder(args.folder)
    folder.acquire()
    started: list[SavedTraining] = []

    def start(flags: dict, warm_up_steps: int) -> dict:
        config = configure(
            args.dataset_path,
            args.threads,
            batch_size=args.batch_size,
            save_checkpoint_path=str(args.folder),
            on_checkpoint_error="stop",
            **flags,
        )
        training = SavedTraining(config, folder)
        started.append(training)
        sizes = [np.prod(w.shape, dtype=np.int64) * w.dtype.itemsize for w in training.weights()]
        peak_mib = training.warm_up(warm_up_steps, config.checkpoint.keep_checkpoints)
        return {"size_mib": sum(map(int, sizes)) / 2**20, "peak_mib": peak_mib}

    def parts() -> dict:
        return {"parts": parts_s(started[0].weights(), args.folder)}

    def describe() -> dict:
        return {**device.describe(), "xxhash": xxhash.VERSION}

    serve(
        {
            "start": start,
            "turn": lambda saving, steps: started[0].turn(saving, steps),
            "parts": parts,
            "describe": describe,
        }
    )


if __name__ == "__main__":
    main()
