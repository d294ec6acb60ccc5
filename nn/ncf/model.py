"""Neural collaborative filtering: NeuMF, GMF and MLP."""

import math
from typing import Any, NamedTuple

import tensorflow as tf
from distributed_embeddings.exchange.gradients import expand
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.seeds import derive_seed

from nn.embedding_model import ModelOptions, StatefulDropoutModel
from nn.ncf.sizes import NCFConfig, embedding_tables
from nn.ncf.tower import Tower, uniform
from nn.train.losses import binary_cross_entropy

TABLE_STDDEV = 0.01


class Distinct(NamedTuple):
    """Vectors of a batch's users and items.

    Attributes:
        vectors: [distinct users or items, columns] of each table in the compute dtype.
        user_of_row, item_of_row: int32 [batch], number of each sample's user and item.
    """

    vectors: list[tf.Tensor]
    user_of_row: tf.Tensor
    item_of_row: tf.Tensor


class Output(keras.layers.Layer):
    """Logit of the outputs of the branches: [gmf, mlp] w + b.

    Kernels start uniform in +-sqrt(3 / width of both), the bias in +-sqrt(1 / width of both).
    """

    def __init__(self, widths: dict[str, int], *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.widths, self.seed = dict(widths), derive_seed(seed, name)

    def build(self, input_shape):
        fan_in = sum(self.widths.values())
        self.kernels = {
            branch: self.add_weight(
                name=f"{branch}_kernel",
                shape=[width, 1],
                initializer=uniform(math.sqrt(3 / fan_in), self.seed, branch, "kernel"),
                experimental_autocast=False,
            )
            for branch, width in self.widths.items()
        }
        self.bias = self.add_weight(
            name="bias",
            shape=[1],
            initializer=uniform(math.sqrt(1 / fan_in), self.seed, "bias"),
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, branches: dict[str, tf.Tensor]) -> tf.Tensor:
        """Maps [batch, width] of each branch to [batch, 1] in the dtype of the weights.

        Products are in that dtype, too: items that are ranked by bfloat16 logits would be tied.
        """
        products = [
            tf.matmul(tf.cast(x, self.bias.dtype), self.kernels[branch])
            for branch, x in branches.items()
        ]
        return tf.add_n(products) + self.bias


class NCFModel(StatefulDropoutModel):
    """A user and an item to the logit of an interaction.

        gmf:    (user_mf * item_mf) w + b
        mlp:    MLP(user_mlp, item_mlp) w + b
        neumf:  [user_mf * item_mf, MLP(user_mlp, item_mlp)] w + b

    He et al., "Neural Collaborative Filtering", 2017, with dropout after the MLP's hidden layers.
    Tables start N(0, 0.01). `options` are those of `ModelOptions`.
    """

    def __init__(self, config: NCFConfig, **options: Any):
        options = ModelOptions(**options)
        super().__init__(name="ncf_model", dtype=options.dtype)
        self.config, seed = config, options.seed
        tables = []
        for name, rows, dim in embedding_tables(config):
            start = keras.initializers.RandomNormal(
                stddev=TABLE_STDDEV, seed=derive_seed(seed, name)
            )
            tables.append(Embedding(rows, dim, start, name=name, dtype=options.dtype))
        self.embedding = options.distribute(tables)
        widths = {"gmf": config.factors} if config.has_gmf else {}
        if config.has_mlp:
            widths["mlp"] = config.layers[-1]
            # A rank's samples are its own, and so are the units that they leave out.
            self.tower = Tower(
                config.layers,
                seed=seed,
                dropout=config.dropout,
                dropout_seed=derive_seed(seed, "dropout", options.world.rank),
                name="mlp",
                dtype=options.dtype,
            )
        self.output_layer = Output(widths, seed=seed, name="output", dtype=options.dtype)
        self._make_weights()

    def _make_weights(self) -> None:
        """Runs one sample without the lookup, which would be collective."""
        self.embedding.build(None)
        vectors = [
            tf.zeros([1, dim], self.compute_dtype) for _, _, dim in embedding_tables(self.config)
        ]
        row = tf.zeros([1], tf.int32)
        self._score(Distinct(vectors, row, row), step=None)

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        """Scores `inputs.user` and `inputs.item`, integers [batch] each; collective.

        Returns:
            Logits of an interaction, [batch, 1] float32.
        """
        return self.forward(inputs, training)

    def forward(self, inputs, training: bool) -> tf.Tensor:
        """Returns the result of `call`; each call drops other units out."""
        distinct = self.look_up(inputs)
        step = None
        if training and self.config.has_mlp and self.config.dropout:
            step = self.steps_seen.assign_add(1)
        return self._score(distinct, step)

    def look_up(self, inputs) -> Distinct:
        """Looks up each row of a table once per batch; collective."""
        users, user_of_row = tf.unique(inputs.user)
        items, item_of_row = tf.unique(inputs.item)
        return Distinct(self.vectors_of(users, items), user_of_row, item_of_row)

    def vectors_of(self, users: tf.Tensor, items: tf.Tensor) -> list[tf.Tensor]:
        """Looks up users, integers [n], and items, integers [m]; collective.

        Returns:
            [n or m, columns] of each table in the compute dtype, in the order of
            `embedding_tables(config)`.
        """
        # One sample of as many ids as there are: users and items differ in number.
        of_users, of_items = (
            tf.RaggedTensor.from_row_lengths(ids, [tf.size(ids)], validate=False)
            for ids in (users, items)
        )
        num_branches = len(embedding_tables(self.config)) // 2
        vectors = self.embedding([of_users, of_items] * num_branches)
        return [ragged.values for ragged in vectors]

    def pair_logits(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Scores every pair of users and items.

            gmf:  (user_mf * w) item_mf^T + b, one matrix product
            mlp:  the first layer once per user and per item, the others per pair

        Args:
            vectors: Those of users and of items, see `vectors_of`.

        Returns:
            Logits of an interaction, [users, items] float32. In mixed precision, the product of GMF
            is in float32 and that of `call` in the compute dtype.
        """
        output, terms = self.output_layer, []
        dtype = output.bias.dtype
        bias = tf.convert_to_tensor(output.bias)
        if self.config.has_gmf:
            users, items = (tf.cast(x, dtype) for x in vectors[:2])
            weighted = users * tf.reshape(output.kernels["gmf"], [1, -1])
            # The bias is one more factor: to add it would read and write all logits again.
            weighted = tf.concat([weighted, tf.fill([tf.shape(users)[0], 1], bias[0])], axis=1)
            items = tf.concat([items, tf.ones([tf.shape(items)[0], 1], dtype)], axis=1)
            terms.append(tf.matmul(weighted, items, transpose_b=True))
            bias = tf.zeros_like(bias)
        if self.config.has_mlp:
            users, items = self.tower.first_layer(*vectors[-2:])

            def of_user(user: tf.Tensor) -> tf.Tensor:
                units = self.tower.other_layers(tf.nn.relu(items + user))
                kernel = tf.convert_to_tensor(output.kernels["mlp"])
                return tf.squeeze(tf.matmul(tf.cast(units, dtype), kernel), 1) + bias

            # One user at a time: the units of all pairs would not fit into memory.
            signature = tf.TensorSpec([None], dtype)
            terms.append(tf.map_fn(of_user, users, fn_output_signature=signature))
        return tf.cast(tf.add_n(terms), tf.float32)

    def logits(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Scores samples whose ids were looked up before.

        Args:
            vectors: [batch, columns] of each table in the compute dtype, in the order of
                `embedding_tables(config)`.

        Returns:
            Logits of an interaction, [batch, 1] float32.
        """
        rows = tf.range(tf.shape(vectors[0])[0])
        return self._score(Distinct(vectors, rows, rows), step=None)

    def _score(self, distinct: Distinct, step: tf.Tensor | None) -> tf.Tensor:
        """Returns logits; `step` of the training for dropout, None without dropout."""
        vectors, user_of_row, item_of_row = distinct
        branches = {}
        if self.config.has_gmf:
            users, items = vectors[:2]
            branches["gmf"] = expand(users, user_of_row) * expand(items, item_of_row)
        if self.config.has_mlp:
            users, items = vectors[-2:]
            branches["mlp"] = self.tower(users, items, user_of_row, item_of_row, step)
        return self.output_layer(branches)


def ncf_loss(model: NCFModel, batch, training: bool = True) -> tuple[tf.Tensor, dict]:
    """Returns the mean log loss of a batch, which has no terms."""
    logits = model.forward(batch.inputs, training=training)
    labels, weights = (tf.cast(x, logits.dtype) for x in (batch.labels, batch.weights))
    return binary_cross_entropy(labels, logits, weights), {}
