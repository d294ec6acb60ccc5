"""Profile of some steps of a training."""

from pathlib import Path

import tensorflow as tf


class Profiler:
    """TensorFlow's profiler, which writes to a folder."""

    def __init__(self, folder: Path):
        self.folder, self.running = folder, False

    def start(self) -> None:
        tf.profiler.experimental.start(str(self.folder))
        self.running = True

    def stop(self) -> None:
        """Writes the profile if the profiler runs."""
        if self.running:
            tf.profiler.experimental.stop()
            self.running = False
