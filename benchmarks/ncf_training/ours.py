"""Our side: model, optimizers and training step of `ncf.py`. A worker of `ncf_training`."""

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks.harness.tensorflow_training import RecipeTraining, set_up
from benchmarks.harness.training_worker import parser_of, serve_training
from benchmarks.harness.workload_files import load
from benchmarks.ncf_training import workload
from dataloading.pipeline.batch import Batch, InteractionInputs
from nn.ncf.config import NEUMF, NCFConfig, embedding_tables
from nn.ncf.loss import ncf_loss
from nn.ncf.model import NCFModel


def model_config(sizes: workload.NCFSizes) -> NCFConfig:
    """The recipe's model of these sizes."""
    return NCFConfig(
        model_type=NEUMF,
        num_users=sizes.users,
        num_items=sizes.items,
        factors=sizes.factors,
        layers=sizes.layers,
        dropout=sizes.dropout,
    )


class NCFTraining(RecipeTraining):
    """NeuMF in training, as the recipe trains it."""

    def __init__(self, rows: workload.NCFRows, sizes: workload.NCFSizes, dtype: str = "float32"):
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

    def parts(self) -> dict:
        """Prefixes of the step."""

        @tf.function(autograph=False)
        def look_up():
            inputs = self.iterator.get_next().inputs
            return [tf.reduce_sum(vectors) for vectors in self.model.look_up(inputs).vectors]

        return {"lookup": look_up, **super().parts()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    set_up(args.threads)
    rows, sizes = load(args.folder, workload.NCFRows, workload.NCFSizes)

    def make(dropout: float) -> NCFTraining:
        training = NCFTraining(rows, workload.with_dropout(sizes, dropout), args.dtype)
        if args.dtype == "float32":
            training.save_weights(args.folder / "weights.npz")
        return training

    serve_training(tf.__version__, make)


if __name__ == "__main__":
    main()
