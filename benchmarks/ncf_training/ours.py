"""Our side: model, optimizers and training step of `ncf.py`. A worker of `ncf_training`."""

import functools

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks.harness.tensorflow_training import RecipeTraining, serve_recipe
from benchmarks.harness.worker import parser_of
from benchmarks.ncf_training import workload
from dataloading.pipeline.batch import Batch, InteractionInputs
from nn.ncf.config import NEUMF, NCFConfig, embedding_tables
from nn.ncf.model import NCFModel, ncf_loss


class NCFTraining(RecipeTraining):
    """NeuMF in training, as the recipe trains it."""

    def __init__(
        self,
        rows: workload.NCFRows,
        sizes: workload.NCFSizes,
        dropout: float,
        dtype: str = "float32",
    ):
        config = NCFConfig(
            model_type=NEUMF,
            num_users=sizes.users,
            num_items=sizes.items,
            factors=sizes.factors,
            layers=sizes.layers,
            dropout=dropout,
        )
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
            model.create_optimizers(options),
            [name for name, _, _ in embedding_tables(config)],
            Batch(inputs, rows.labels, np.ones_like(rows.labels)),
            sizes.batch_size,
        )

    def parts(self) -> dict:
        @tf.function(autograph=False)
        def look_up():
            inputs = self.iterator.get_next().inputs
            return [tf.reduce_sum(vectors) for vectors in self.model.look_up(inputs).vectors]

        return {"lookup": look_up, **super().parts()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    make = functools.partial(NCFTraining, dtype=args.dtype)
    serve_recipe(args, workload.NCFRows, workload.NCFSizes, make)


if __name__ == "__main__":
    main()
