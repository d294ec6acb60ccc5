"""The recipe `dlrm.py` as the benchmarks train it: flags, model, trainer, and rows without end.

The rows come from split binaries through the loader, as in any training; they are in the page
cache.
"""

import config as configuration
from benchmarks.dlrm_training import workload
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from recipes import ctr
from runtime.cluster.distributed import World
from runtime.hardware import device


def configure(
    dataset_path: str,
    threads: int,
    inter_op_threads: int | None = None,
    batch_size: int = workload.BATCH_SIZE,
    **flags,
) -> configuration.Config:
    """The flags of a training: the recipe's own, but for those that a benchmark needs.

    Args:
        dataset_path: folder of the rows, made by `workload.make_rows`.
        threads: of one operation, and of operations side by side.
        inter_op_threads: of operations side by side, where it is another number.
        flags: others, by name.
    """
    return configuration.Config("dlrm").replace(
        dataset_path=dataset_path,
        batch_size=batch_size,
        valid_batch_size=batch_size,
        eval_mapping=TRAIN,
        shuffle=False,  # the peers of these benchmarks read the samples in file order
        learning_rate=workload.LEARNING_RATE,
        warmup_steps=0,
        decay_steps=0,
        seed=1,
        cpu=True,
        intra_op_parallelism=threads,
        inter_op_parallelism=inter_op_threads or threads,
        **flags,
    )


def dense_bytes(model) -> int:
    """Size of the gradients that all ranks sum, in addition to those of tables."""
    return sum(v.shape.num_elements() * v.dtype.size for v in model.dense_variables)


class DLRMTraining:
    """The recipe's model and trainer, and where it is in the rows."""

    def __init__(self, config: configuration.Config, world: World = World()):
        place = device.set_up(config.run, world.local_rank, world.local_size)
        self.spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
        self.recipe = recipe = ctr.build(config, self.spec, world, place)
        self.model = recipe.model
        self.trainer = recipe.make_trainer(place.loss_scale, world)
        self.iterator = iter(recipe.train.dataset().repeat())

    def step(self) -> int:
        """One training step, to its end; how many there were. Does not look at the loss, as
        training does not but once in --print_freq steps."""
        self.trainer.train_step(self.iterator)
        return int(self.trainer.step)
