"""Our side: the recipe `dlrm.py`, its loader and training step. A worker of `dlrm_training`."""

import tempfile

import numpy as np
import tensorflow as tf

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.recipe import DLRMTraining, configure
from benchmarks.dlrm_training.step_parts import parts_ms
from benchmarks.harness.training_worker import parser_of, serve_training
from benchmarks.harness.worker import timed_ms


class MeasuredTraining(DLRMTraining):
    """The recipe in training, and the step's matrix products alone."""

    def __init__(self, config, precision: str):
        super().__init__(config)
        self._multiplications = multiplications(precision)
        self.products_ms()  # traces them

    def step(self) -> float:
        """One training step; its loss."""
        super().step()
        return self.trainer.progress().loss

    def save_weights(self, path) -> None:
        """Writes the weights for PyTorch: `table`, and `{stack}.dense_{i}.{kernel,bias}`."""
        (table,) = self.model.embedding.trainable_variables
        layers = {
            f"{name}.dense_{i}.{part}": getattr(layer, part).numpy()
            for name, mlp in (("bottom", self.model.bottom_mlp), ("top", self.model.top_mlp))
            for i, layer in enumerate(mlp.stack)
            for part in ("kernel", "bias")
        }
        np.savez(path, table=table.numpy(), **layers)

    def parts_ms(self, count: int) -> dict[str, float]:
        """Milliseconds of each part of a step."""
        with tempfile.TemporaryDirectory() as folder:
            return dict(parts_ms(self.step, count, folder))

    def products_ms(self) -> list[float]:
        """Milliseconds of each of `workload.products()`."""
        return [timed_ms(multiply) for multiply in self._multiplications]


def multiplications(precision: str) -> list:
    """Calls that compute each of `workload.products()`."""
    calls = []
    for product in workload.products():
        a, b, transpose_a, transpose_b = workload.operands(product)
        a = tf.cast(tf.random.normal(a), precision)
        b = tf.cast(tf.random.normal(b), precision)
        multiply = tf.function(tf.linalg.matmul, autograph=False)
        calls.append(
            lambda a=a, b=b, multiply=multiply, transposed=(transpose_a, transpose_b): multiply(
                a, b, *transposed
            )
        )
    return calls


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--inter_op_threads", type=int, help="--threads where not given")
    parser.add_argument("--interaction", default="dot")
    args = parser.parse_args()

    def make(precision: str) -> MeasuredTraining:
        config = configure(
            str(args.folder / "rows"),
            args.threads,
            args.inter_op_threads,
            amp=precision == "bfloat16",
            interaction=args.interaction,
        )
        training = MeasuredTraining(config, precision)
        training.save_weights(args.folder / "weights.npz")
        return training

    serve_training(tf.__version__, make)


if __name__ == "__main__":
    main()
