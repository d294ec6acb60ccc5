"""A training of `checkpoint_cost`: the recipe `dlrm.py`, with and without saving, on request."""

import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
import xxhash
from distributed_embeddings.collectives import World

from benchmarks.dlrm_training.ours import DLRMTraining, configure
from benchmarks.harness.worker import (
    parser_of,
    peak_memory_mib,
    reset_peak_memory,
    serve_training,
)
from runtime.checkpoint import Folder, files
from runtime.checkpoint.disk import Disk, aligned_copy
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.checkpoint.weight import BLOCK_BYTES
from runtime.checkpoint.writer import sync_file
from runtime.cluster.signals import StopSignal
from training.checkpoints import describe_training, training_weights
from training.state import Position


class SavedTraining(DLRMTraining):
    """One training, whose turns have checkpoints or not, as training/loop.py has them.

    Args:
        config: the flags; the checkpoints' are the defaults, but that a fault ends the benchmark.
        folder: of the checkpoints.
    """

    def __init__(self, config, folder: Folder):
        super().__init__(config, World())
        self._description = describe_training(config, self.recipe, self.spec.fingerprint())
        self._saved_at = 0.0  # when the training's log reported a saved checkpoint
        self._before_mib = 0.0
        log = SimpleNamespace(message=self._note)
        world, signals = World(), StopSignal()
        self._policy = CheckpointPolicy(config.checkpoint, folder, world, log, signals)
        self._no_policy = CheckpointPolicy(config.checkpoint, None, world, log, signals)
        self._num_kept = config.checkpoint.keep_checkpoints

    def _note(self, text: str) -> None:
        self._saved_at = time.perf_counter()

    def facts(self) -> dict:
        weights = training_weights(self.recipe)
        sizes = [np.prod(w.shape, dtype=np.int64) * w.dtype.itemsize for w in weights]
        versions = {"tensorflow": tf.__version__, "numpy": np.__version__, "xxhash": xxhash.VERSION}
        size_mib = sum(map(int, sizes)) / 2**20
        return {"size_mib": size_mib, "before_mib": self._before_mib, "versions": versions}

    def warm_up(self, steps: int) -> None:
        """Steps, the same number again for the memory before the first save, and saves.

        With --keep_checkpoints 2 it takes two saves until every further one deletes another.
        """
        self._steps(steps, self._no_policy)
        reset_peak_memory()
        self._steps(steps, self._no_policy)
        self._before_mib = peak_memory_mib()
        for _ in range(self._num_kept):
            self._begin_save()
            self._steps(1, self._policy)
            self._policy.finish()

    def turn(self, saving: bool, steps: int) -> dict:
        """A save, if `saving`, and the steps that follow it until the next one is due.

        A save that is not on the disk after the last step is waited for: the next one would.
        """
        policy = self._policy if saving else self._no_policy
        reset_peak_memory()
        begin = time.perf_counter()
        if saving:
            self._begin_save()
        copied = time.perf_counter()
        steps_s = self._steps(steps, policy)
        stepped = time.perf_counter()
        policy.finish()
        end = time.perf_counter()
        turn = {"turn_s": end - begin, "peak_mib": peak_memory_mib(), "steps_s": steps_s}
        if saving:
            turn |= {"copy_s": copied - begin, "rest_s": end - stepped}
            turn["disk_s"] = self._saved_at - begin
        return turn

    def _begin_save(self) -> None:
        position = Position(step=int(self.trainer.step), trainer=self.trainer.state())
        state = position.to_json(self.recipe.goal)
        weights = training_weights(self.recipe)
        self._policy.save(position.step, weights, self._description, state)

    def _steps(self, count: int, policy: CheckpointPolicy) -> list[float]:
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.step()
            policy.tick()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def save_parts_s(self, folder: str) -> dict[str, float]:
        return save_parts_s(training_weights(self.recipe), Path(folder))


def save_parts_s(weights, folder: Path) -> dict[str, float]:
    """Seconds of the parts of one save, each alone: one thread, nothing is trained."""
    seconds: dict[str, float] = defaultdict(float)

    def timed(part: str, call, *arguments):
        begin = time.perf_counter()
        result = call(*arguments)
        seconds[part] += time.perf_counter() - begin
        return result

    def copies(weight, box):
        for block in box.blocks(files.rows_of_block(box.columns, weight.dtype)):
            values = timed("copy out of the tables", weight.read, block)
            assert timed("finite check", lambda values=values: np.isfinite(values).all())
            copied = timed("copy to an aligned buffer", aligned_copy, values)
            timed("checksum", files.checksum, copied[: values.nbytes])
            begin = time.perf_counter()
            yield copied, values.nbytes
            seconds["write, past the page cache"] += time.perf_counter() - begin

    written, disk = [], Disk()
    for weight in weights:
        weight.prepare()
        for box in weight.saved_by(0):
            path = folder / f"{len(written)}.part"
            written.append(path)
            is_large = box.size * weight.dtype.itemsize >= BLOCK_BYTES
            disk.write(path, copies(weight, box), is_large)
    for path in written:  # as in a save, after all were written
        timed("wait for the disk (fsync)", sync_file, path)
    for path in written:
        timed("delete the oldest checkpoint", path.unlink)
    return dict(seconds)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True, help="new folder for them")
    args = parser.parse_args()
    folder = Folder(args.checkpoints)
    folder.acquire()

    def make(batch_size: int, flags: dict) -> SavedTraining:
        flags = {"save_checkpoint_path": str(args.checkpoints), **flags}
        config = configure(
            args.folder, args.threads, batch_size=batch_size, on_checkpoint_error="stop", **flags
        )
        return SavedTraining(config, folder)

    serve_training(tf.__version__, make, args.address)


if __name__ == "__main__":
    main()
