"""Profile of some steps of a training."""

from pathlib import Path

from config import RunConfig
from runtime.cluster.distributed import World


class Profiler:
    """TensorFlow's profiler over --profiler_steps steps from --profiler_start_step on."""

    def __init__(self, options: RunConfig, run_dir: Path, world: World):
        self.start = options.profiler_start_step
        self.steps = options.profiler_steps
        if world.rank != options.profiled_rank:
            self.start = None
        self.folder = run_dir / "profile"
        self.running = False

    def before(self, step: int) -> None:
        """Starts after `step` steps."""
        if step == self.start:
            import tensorflow as tf

            tf.profiler.experimental.start(str(self.folder))
            self.running = True

    def after(self, step: int) -> None:
        """Stops after the last step to record."""
        if self.running and self.start is not None and step == self.start + self.steps:
            self.stop()

    def stop(self) -> None:
        """Writes the profile if the profiler runs."""
        if self.running:
            import tensorflow as tf

            tf.profiler.experimental.stop()
            self.running = False
