"""Base classes of models with distributed embedding tables."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.planner import Plan

from nn.layers.dropout import DropoutPlace, first_sample
from nn.optim.optimizers import Optimizer, create_optimizers
from runtime.checkpoint.weight import VariableWeight, Weight


class EmbeddingModel(keras.Model):
    """Base of the models: `embedding`, a layer of distributed tables, and dense layers around it.

    A subclass sets `embedding`, a `DistributedEmbedding`, and creates all weights in its
    constructor.
    """

    @property
    def table_variables(self) -> list[tf.Variable]:
        """Trained variables that store embedding tables."""
        return list(self.embedding.trainable_variables)

    @property
    def dense_variables(self) -> list[tf.Variable]:
        """All other trained variables."""
        tables = {v.ref() for v in self.embedding.variables}
        return [v for v in self.trainable_variables if v.ref() not in tables]

    def weights_to_save(self) -> list[Weight]:
        """Returns every weight: whole tables under `sparse/`, all others under `dense/`."""
        dense = [VariableWeight(f"dense/{self.name_of(v)}", v) for v in self.dense_variables]
        return dense + [t.named(f"sparse/{t.name}") for t in self.embedding.table_weights()]

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights, of whole tables."""
        return sum(math.prod(weight.shape) for weight in self.weights_to_save())

    def create_optimizers(self, options, independent_decay: bool = False) -> list[Optimizer]:
        """Creates the optimizers of `dense_variables` and of `table_variables`."""
        variables = self.dense_variables, self.table_variables
        return create_optimizers(options, *variables, self.embedding.row_means(), independent_decay)

    def name_of(self, variable: tf.Variable) -> str:
        """Returns the name of a dense variable in checkpoints."""
        name = variable.name.removeprefix(f"{self.name}/").split(":")[0]
        return name.replace("/", ".")

    def optimizer_weights(self, optimizers: Sequence[Optimizer]) -> list[Weight]:
        """Returns the state of `create_optimizers`, named `dense.KIND/` and `sparse.KIND/`."""
        dense, tables = optimizers
        weights: list[Weight] = []
        for kind, slots in dense.state.items():
            for variable, slot in zip(dense.variables_to_move, slots, strict=True):
                weights.append(VariableWeight(f"dense.{kind}/{self.name_of(variable)}", slot))
        for place, optimizer in (("dense", dense), ("sparse", tables)):
            for name, scalar in optimizer.scalars.items():
                weights.append(VariableWeight(f"{place}.scalars/{name}", scalar))
        if not self.embedding.trainable:
            return weights
        whole_tables = self.embedding.table_weights()
        for kind, slots in tables.state.items():
            of_variable = {
                variable.ref(): slot
                for variable, slot in zip(tables.variables_to_move, slots, strict=True)
            }
            for table in whole_tables:
                name = f"sparse.{kind}/{table.name}"
                weights.append(table.state(name, of_variable, kind in tables.by_row))
        return weights


class StatefulDropoutModel(EmbeddingModel):
    """Base of the models whose dropout resumes after a restart."""

    def __init__(self, *, name: str, dtype: str, world: World = World()):
        super().__init__(name=name, dtype=dtype, autocast=False)  # numbers stay as they are
        self._world = world
        # Steps with dropout so far: each leaves other units out, also after a restart.
        self.steps_seen = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps_seen")

    def next_place(self, num_samples: tf.Tensor, weights: tf.Tensor | None) -> DropoutPlace:
        """Returns the place of the next step's samples.

        Args:
            num_samples: of this rank, int32 scalar.
            weights: their weights, see `first_sample`.
        """
        first = first_sample(weights, num_samples, self._world.rank, self._world.size)
        return DropoutPlace(self.steps_seen.assign_add(1), first, num_samples)

    def optimizer_weights(self, optimizers: Sequence[Optimizer]) -> list[Weight]:
        steps = VariableWeight("dropout/steps_seen", self.steps_seen)
        return [*super().optimizer_weights(optimizers), steps]


def dense_bytes(build: Callable[[], EmbeddingModel]) -> int:
    """Returns the bytes of the gradients of the dense variables of `build()`.

    The model is built in a graph that never runs, where variables take no memory. Its tables may
    have one row each.
    """
    with tf.Graph().as_default():
        return sum(v.shape.num_elements() * v.dtype.size for v in build().dense_variables)


@dataclass(frozen=True)
class ModelOptions:
    """Arguments of all models in addition to their shape.

    Attributes:
        dtype: Keras dtype policy: "float32", "mixed_bfloat16" or "mixed_float16"; "float64" is for
            tests of gradients.
        world: The ranks among which tables are distributed.
        plan: The sharding plan of `embedding_tables(config)`; None: that of strategy "auto".
        exchange_dtype: Dtype of embedding vectors between ranks; None: the compute dtype.
        embedding_trainable: Whether tables get gradients.
    """

    seed: int = 0
    dtype: str = "float32"
    world: World = World()
    plan: Plan | None = None
    exchange_dtype: str | None = None
    embedding_trainable: bool = True

    def distribute(
        self, tables: Sequence[Embedding], dp_input: bool = True
    ) -> DistributedEmbedding:
        """Returns the layer `embedding` of a model whose loader checks ids."""
        return DistributedEmbedding(
            tables,
            strategy="auto",
            dp_input=dp_input,
            plan=self.plan,
            exchange_dtype=self.exchange_dtype,
            check_ids=False,  # the loader does
            world=self.world,
            trainable=self.embedding_trainable,
            dtype=self.dtype,
            name="embedding",
        )
