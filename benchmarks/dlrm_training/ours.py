"""Our side: the recipe `dlrm.py`, its loader and training step. A worker of `dlrm_training`."""

import argparse
import tempfile

import tensorflow as tf

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.recipe import Training, configure
from benchmarks.dlrm_training.step_parts import parts_ms
from benchmarks.harness.worker import serve, timed_ms, timed_steps


def save_weights_of(model, path: str) -> None:
    """Writes the weights for the other side."""

    def layers(mlp):
        return [(layer.kernel.numpy(), layer.bias.numpy()) for layer in mlp.stack]

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
    parser.add_argument("--interaction", default="dot")
    args = parser.parse_args()
    trainings, multiplications = {}, {}

    def describe() -> dict:
        return {"version": tf.__version__}

    def start(precision: str) -> dict:
        amp = precision == "bfloat16"
        config = configure(
            args.dataset_path,
            args.threads,
            args.inter_op_threads,
            amp=amp,
            interaction=args.interaction,
        )
        trainings[precision] = Training(config)
        multiplications[precision] = Multiplications(precision)
        return {}

    def save_weights() -> dict:
        save_weights_of(trainings["float32"].model, args.weights)
        return {}

    def steps(precision: str, count: int) -> dict:
        return timed_steps(trainings[precision].loss_of_step, count)

    def products(precision: str) -> dict:
        return {"ms": multiplications[precision].times_ms()}

    def parts(precision: str, count: int) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            return {"parts": parts_ms(trainings[precision].loss_of_step, count, folder)}

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
