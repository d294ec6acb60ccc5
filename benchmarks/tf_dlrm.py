"""Our side: the recipe `dlrm.py`, its model, loader and training step. A worker of `dlrm_training`.

The rows come from split binaries through the loader, as in any training; they are in the page
cache.
"""

import argparse
import tempfile

import tensorflow as tf

import config as configuration
import ranking
from benchmarks import dlrm_workload as workload
from benchmarks.step_parts import parts_ms
from benchmarks.worker import serve, timed_ms, timed_steps
from dataloading.feature_spec import TRAIN, FeatureSpec
from nn.trainer import Trainer
from runtime.device import set_up
from runtime.distributed import World


class Training:
    """The recipe's model and trainer, and where it is in the rows."""

    def __init__(self, config: configuration.Config, place):
        spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
        recipe = ranking.build(config, spec, World(), place)
        self.model = recipe.model
        self.trainer = Trainer(recipe.model, recipe.loss, recipe.groups, place.loss_scale)
        self.iterator = iter(recipe.train.dataset().repeat())

    def step(self) -> float:
        """One training step; its loss. Waits for the device, which training does not."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, path: str) -> None:
        """Writes the weights for the other side."""

        def layers(mlp):
            return [(layer.kernel.numpy(), layer.bias.numpy()) for layer in mlp.stack]

        model = self.model
        (table,) = model.embedding.trainable_variables
        workload.save_weights(path, table.numpy(), layers(model.bottom_mlp), layers(model.top_mlp))


class Multiplications:
    """The step's matrix products alone."""

    def __init__(self, precision: str):
        self.calls = []
        for product in workload.products():
            a, b, transpose_a, transpose_b = workload.operands(product)
            a = tf.cast(tf.random.normal(a), precision)
            b = tf.cast(tf.random.normal(b), precision)
            multiply = _multiplication(transpose_a, transpose_b)
            self.calls.append(lambda a=a, b=b, multiply=multiply: multiply(a, b))

    def times_ms(self) -> list[float]:
        """Milliseconds of each of `workload.products()`."""
        return [timed_ms(call) for call in self.calls]


def _multiplication(transpose_a: bool, transpose_b: bool):
    @tf.function(autograph=False)
    def multiply(a, b):
        return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)

    return multiply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset_path", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--inter_op_threads", type=int, help="--threads where not given")
    args = parser.parse_args()
    config = configuration.Config("dlrm").replace(
        dataset_path=args.dataset_path,
        batch_size=workload.BATCH_SIZE,
        valid_batch_size=workload.BATCH_SIZE,
        eval_mapping=TRAIN,
        learning_rate=workload.LEARNING_RATE,
        warmup_steps=0,
        decay_steps=0,
        seed=1,
        cpu=True,
        intra_op_parallelism=args.threads,
        inter_op_parallelism=args.inter_op_threads or args.threads,
    )
    trainings, multiplications = {}, {}

    def describe() -> dict:
        return {"version": tf.__version__}

    def start(precision: str) -> dict:
        place = set_up(config.replace(amp=precision == "bfloat16").run)
        trainings[precision] = Training(config, place)
        multiplications[precision] = Multiplications(precision)
        return {}

    def save_weights() -> dict:
        trainings["float32"].save_weights(args.weights)
        return {}

    def steps(precision: str, count: int) -> dict:
        return timed_steps(trainings[precision].step, count)

    def products(precision: str) -> dict:
        return {"ms": multiplications[precision].times_ms()}

    def parts(precision: str, count: int) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            return {"parts": parts_ms(trainings[precision].step, count, folder)}

    serve(
        {
            "describe": describe,
            "start": start,
            "save_weights": save_weights,
            "steps": steps,
            "products": products,
            "parts": parts,
        }
    )


if __name__ == "__main__":
    main()
