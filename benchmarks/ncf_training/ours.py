"""Our side: model, optimizers and training step of `ncf.py`. A worker of `ncf_training`."""

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks.harness.recipe_training import RecipeTraining, set_up, wait
from benchmarks.harness.training_worker import parser_of, serve_training
from benchmarks.harness.workload_files import load
from benchmarks.ncf_training import workload
from benchmarks.ncf_training.workload import timed_in_turn
from dataloading.pipeline.batch import Batch, InteractionInputs
from nn.ncf.config import NEUMF, NCFConfig, embedding_tables
from nn.ncf.loss import ncf_loss
from nn.ncf.model import NCFModel


def model_config(sizes: workload.Sizes) -> NCFConfig:
    """The recipe's model of these sizes."""
    return NCFConfig(
        model_type=NEUMF,
        num_users=sizes.users,
        num_items=sizes.items,
        factors=sizes.factors,
        layers=sizes.layers,
        dropout=sizes.dropout,
    )


class Training(RecipeTraining):
    """NeuMF in training, as the recipe trains it."""

    def __init__(self, rows: workload.Rows, sizes: workload.Sizes, dtype: str = "float32"):
        config = model_config(sizes)
        model = NCFModel(config, seed=1, dtype=dtype)
        options = configuration.OptimizerConfig(
            optimizer="adam",
            learning_rate=workload.LEARNING_RATE,
            beta1=workload.BETA1,
            beta2=workload.BETA2,
            epsilon=workload.EPSILON,
            warmup_steps=0,
            decay_steps=0,
        )
        inputs = InteractionInputs(rows.user, rows.item)
        super().__init__(
            model,
            ncf_loss,
            model.optimizer_groups(options),
            [name for name, _, _ in embedding_tables(config)],
            Batch(inputs, rows.labels, np.ones_like(rows.labels)),
            sizes.batch_size,
        )

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of prefixes of the step and of all of it, in turn, `count` times."""

        @tf.function(autograph=False)
        def look_up():
            inputs = self.iterator.get_next().inputs
            return [tf.reduce_sum(vectors) for vectors in self.model.look_up(inputs).vectors]

        calls = {"look-up": look_up, **self.passes()}
        waited = {name: lambda call=call: wait(call()) for name, call in calls.items()}
        return timed_in_turn(waited | {"step": self.step}, count)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    set_up(args.threads)
    rows, sizes = load(args.folder, workload.Rows, workload.Sizes)

    def make(dropout: float) -> Training:
        training = Training(rows, workload.with_dropout(sizes, dropout), args.dtype)
        if args.dtype == "float32":
            training.save_weights(args.folder / "weights.npz")
        return training

    serve_training(tf.__version__, make)


if __name__ == "__main__":
    main()
