"""`RunContext`: everything that a mode of a run works with."""

from dataclasses import dataclass
from pathlib import Path

from config import Config
from recipes.recipe import Recipe
from runtime.checkpoint.resume import Start
from runtime.cluster.distributed import World
from runtime.hardware.device import Device
from runtime.logs.run_logger import RunLogger
from training.state import Position


@dataclass(frozen=True)
class RunContext:
    """A run that is set up: processes, device, data, model and log.

    Attributes:
        config: the flags, with those that a checkpoint or a preset sets.
        recipe: model, data, loss and evaluator.
        device: device of this process.
        world: the ranks.
        log: log of the run.
        run_dir: folder of the run.
        start: checkpoint that the run starts from, and the folder it saves to.
        position: position that the training starts from and advances.
        total_steps: steps of the whole training, those of earlier runs included; None in other
            modes.
        spec_hash: fingerprint of the feature spec; None for data generated from flags.
    """

    config: Config
    recipe: Recipe
    device: Device
    world: World
    log: RunLogger
    run_dir: Path
    start: Start
    position: Position
    total_steps: int | None
    spec_hash: str | None
