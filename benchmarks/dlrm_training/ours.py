"""Our side: the recipe `dlrm.py` with its loader and training step, also of N ranks.

The samples come from split binaries, as in any training; they are in the page cache.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.planner.traffic import KINDS, traffic

import config as configuration
from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.step_parts import parts_ms
from benchmarks.harness.worker import parser_of, serve_training, timed_ms
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from recipes import ctr
from runtime.cluster import distributed
from runtime.hardware import device


def configure(
    folder: Path,
    threads: int,
    inter_op_threads: int | None = None,
    batch_size: int = workload.BATCH_SIZE,
    **flags,
) -> configuration.Config:
    """The recipe's flags, except those that a benchmark needs; `folder` holds the rows."""
    return configuration.Config("dlrm").replace(
        dataset_path=str(folder / "rows"),
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


class DLRMTraining:
    """The recipe's model and trainer, and where it is in the samples."""

    def __init__(self, config: configuration.Config, world: World, ranks_per_machine: int = 1):
        place = device.set_up(config.device, world.local_rank, world.local_size)
        self.spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
        self.recipe = recipe = ctr.build(config, self.spec, world, place)
        self.trainer = recipe.make_trainer(place.loss_scale, world)
        self.iterator = iter(recipe.train.dataset().repeat())
        self._world, self._ranks_per_machine = world, ranks_per_machine

    def step(self) -> int:
        """One training step, to its end. Like a training, it does not read the loss."""
        self.trainer.train_step(self.iterator)
        return int(self.trainer.step)

    def read_loss(self) -> float:
        return self.trainer.progress().loss

    def facts(self) -> dict:
        """Bytes per step that the plan sends to and receives from other machines, by kind."""
        model = self.recipe.model
        planned = traffic(
            model.embedding.plan,
            ranks_per_machine=self._ranks_per_machine,
            dense_bytes=sum(v.shape.num_elements() * v.dtype.size for v in model.dense_variables),
        )[self._world.rank]
        sent, received = planned.sent_between, planned.received_between
        return {"sent": {kind: sent[kind] for kind in KINDS}, "received": received}

    def parts_ms(self, count: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            return parts_ms(self.step, count, folder)


class ComparedTraining(DLRMTraining):
    """A training whose steps end with reading the loss, as those of the peer."""

    read_loss = None

    def __init__(self, config: configuration.Config, precision: str):
        super().__init__(config, World())
        self._multiplications = multiplications(precision)
        self.products_ms()  # traces them

    def step(self) -> float:
        super().step()
        return super().read_loss()

    def save_weights(self, path: Path) -> None:
        """Writes the weights for PyTorch: `table`, and `{stack}.dense_{i}.{kernel,bias}`."""
        model = self.recipe.model
        (table,) = model.embedding.trainable_variables
        layers = {
            f"{name}.dense_{i}.{part}": getattr(layer, part).numpy()
            for name, mlp in (("bottom", model.bottom_mlp), ("top", model.top_mlp))
            for i, layer in enumerate(mlp.stack)
            for part in ("kernel", "bias")
        }
        np.savez(path, table=table.numpy(), **layers)

    def products_ms(self) -> list[float]:
        """Milliseconds of each of `workload.products()`."""
        return [timed_ms(multiply) for multiply in self._multiplications]


def multiplications(precision: str) -> list[Callable]:
    """Calls that compute each of `workload.products()`."""

    def multiplication(product: workload.Product) -> Callable:
        a, b = (tf.cast(tf.random.normal(shape), precision) for shape in (product.a, product.b))
        multiply = tf.function(tf.linalg.matmul, autograph=False)
        return lambda: multiply(a, b, product.transpose_a, product.transpose_b)

    return [multiplication(product) for product in workload.products()]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--inter_op_threads", type=int, help="--threads where not given")
    parser.add_argument("--interaction", default="dot")
    parser.add_argument("--untimed_loss", action="store_true", help="steps do not read their loss")
    parser.add_argument("--ranks_per_machine", type=int, default=1)
    args = parser.parse_args()
    world = distributed.connect()

    def make(flags: dict, batch_size: int = workload.BATCH_SIZE) -> DLRMTraining:
        threads = (args.threads, args.inter_op_threads)
        flags = {"interaction": args.interaction, **flags}
        config = configure(args.folder, *threads, batch_size, **flags)
        if args.untimed_loss:
            return DLRMTraining(config, world, args.ranks_per_machine)
        training = ComparedTraining(config, "bfloat16" if flags.get("amp") else "float32")
        training.save_weights(args.folder / "weights.npz")
        return training

    serve_training(tf.__version__, make, args.address, world.rank)


if __name__ == "__main__":
    main()
