"""What trainers and checkpoints ask of a model whose tables are spread over ranks."""

import math
from collections.abc import Sequence

import tensorflow as tf

from nn.embedding.merlin import MerlinEmbedding
from nn.keras import keras
from nn.optimizers import OptimizerGroup, create_groups
from runtime.checkpoint import VariableWeight, Weight


class TabledModel(keras.Model):
    """Base of the models: `embedding`, a layer of distributed tables, and dense layers around it.

    A subclass sets `embedding` (`DistributedEmbedding` or `MerlinEmbedding`) and makes all weights
    in its constructor.
    """

    @property
    def table_variables(self) -> list[tf.Variable]:
        """The variables that hold embedding tables and are trained."""
        return list(self.embedding.trainable_variables)

    @property
    def dense_variables(self) -> list[tf.Variable]:
        """All other trained variables."""
        tables = {v.ref() for v in self.embedding.variables}
        return [v for v in self.trainable_variables if v.ref() not in tables]

    def weights_to_save(self) -> list[Weight]:
        """Every weight by name: whole tables under `sparse/`, all others under `dense/`."""
        dense = [VariableWeight(f"dense/{self.name_of(v)}", v) for v in self.dense_variables]
        return dense + [t.named(f"sparse/{t.name}") for t in self.embedding.table_weights()]

    @property
    def num_parameters(self) -> int:
        """Numbers in all weights, of whole tables."""
        return sum(math.prod(weight.shape) for weight in self.weights_to_save())

    def optimizer_groups(self, options) -> list[OptimizerGroup]:
        """Optimizers of `dense_variables` and of `table_variables`.

        Args:
          options: `config.OptimizerConfig`.
        """
        row_means = self.embedding.row_means()
        return create_groups(options, self.dense_variables, self.table_variables, row_means)

    def name_of(self, variable: tf.Variable) -> str:
        """Name of a dense variable within the model, as checkpoints have it."""
        name = variable.name.removeprefix(f"{self.name}/").split(":")[0]
        return name.replace("/", ".")

    def optimizer_weights(self, groups: Sequence[OptimizerGroup]) -> list[Weight]:
        """The state of the optimizers by name, `dense.KIND/` and `sparse.KIND/`.

        Args:
          groups: optimizers of `dense_variables` and of `table_variables`.
        """
        dense, tables = (group.optimizer for group in groups)
        found: list[Weight] = []
        for kind, slots in dense.state.items():
            for variable, slot in zip(dense.variables_to_move, slots, strict=True):
                found.append(VariableWeight(f"dense.{kind}/{self.name_of(variable)}", slot))
        for place, optimizer in (("dense", dense), ("sparse", tables)):
            for name, scalar in optimizer.scalars.items():
                found.append(VariableWeight(f"{place}.scalars/{name}", scalar))
        if not self.embedding.trainable or self.state_not_saved(groups):
            return found
        whole_tables = self.embedding.table_weights()
        for kind, slots in tables.state.items():
            of_variable = {
                variable.ref(): slot
                for variable, slot in zip(tables.variables_to_move, slots, strict=True)
            }
            for table in whole_tables:
                name = f"sparse.{kind}/{table.name}"
                found.append(table.state(name, of_variable, kind in tables.by_row))
        return found

    def state_not_saved(self, groups: Sequence[OptimizerGroup]) -> str | None:
        """Why a training cannot go on from `optimizer_weights`; None if it can."""
        tables = groups[1].optimizer
        kept = tables.state and self.embedding.trainable
        if not isinstance(self.embedding, MerlinEmbedding) or not kept:
            return None
        return (
            "Merlin's distributed-embeddings does not give the optimizer's state of its tables: "
            "use --embedding_backend native, or --embedding_optimizer sgd, which has none"
        )
