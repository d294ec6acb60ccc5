"""Profile of some steps of a training."""

from pathlib import Path

import tensorflow as tf
from distributed_embeddings.collectives import World

from config import LogConfig


class Profiler:
    """TensorFlow's profiler over --profiler_steps steps from --profiler_start_step on."""

    def __init__(self, options: LogConfig, run_dir: Path, world: World):
        is_profiled = world.rank == options.profiled_rank
        self.start = options.profiler_start_step if is_profiled else None
        self.steps = options.profiler_steps
        self.folder = run_dir / "profile"
        self.running = False

    def before(self, step: int) -> None:
        if step == self.start:
            tf.profiler.experimental.start(str(self.folder))
            self.running = True

    def after(self, step: int) -> None:
        if self.start is not None and step == self.start + self.steps:
            self.stop()

    def stop(self) -> None:
        """Writes the profile if the profiler runs."""
        if self.running:
            tf.profiler.experimental.stop()
            self.running = False
