"""Profile of some steps of a training."""

from pathlib import Path

import tensorflow as tf


class Profiler:
    """TensorFlow's profiler over `steps` steps.

    Args:
        start: step before which it starts; None: never.
        steps: number of steps.
        folder: folder of the profile.
    """

    def __init__(self, start: int | None, steps: int, folder: Path):
        self.start, self.steps, self.folder = start, steps, folder
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
