"""Sequential recommenders: SIM, DIEN, DIN, and a baseline without history."""

from typing import Any, NamedTuple

import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import TableUniform
from distributed_embeddings.precision import precise
from distributed_embeddings.seeds import derive_seed

from nn.embedding_model import ModelOptions, StatefulDropoutModel
from nn.layers.dropout import Dropout, DropoutPlace
from nn.sequence.dien import AuxiliaryOutputs
from nn.sequence.sequence_lookup import Vectors, arrange, history_mask, look_up, mean_of_history
from nn.sequence.sizes import (
    DIEN,
    DIN,
    HARD,
    SIM,
    SOFT,
    SequenceModelConfig,
    embedding_tables,
    hotnesses,
)
from nn.sequence.variants import VARIANTS


class SequenceOutputs(NamedTuple):
    """Inputs of the losses of a batch (nn/sequence/loss.py).

    logits: logits of a click, [batch, 1] float32.
    gsu_logits: logits of the soft search's classifier, [batch, 1] float32; None without one.
    aux: logits of the auxiliary loss; None without one.
    """

    logits: tf.Tensor
    gsu_logits: tf.Tensor | None
    aux: AuxiliaryOutputs | None


class SequenceModel(StatefulDropoutModel):
    """User, target item and history to the logit of a click.

        no_history:  MLP(user, target)
        din:         MLP(user, target, history as the target sees it)
        dien:        MLP(user, target, interest evolution over the history)
        sim:         MLP(user, target, attention over what the search selects of the long history,
                         interest evolution over the short one)

    DIN: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", 2018. DIEN: Zhou et
    al., "Deep Interest Evolution Network", 2019. SIM: Pi et al., "Search-based User Interest
    Modeling with Lifelong Sequential Behavior Data", 2020. Without batch normalisation, and with
    tables of the user. With `config.history_product` the MLP of all but no_history also reads
    target * mean of the history; the code of DIEN's authors has the sum in place of the mean.

    `config.variant` chooses the layers, the order of an MLP's inputs and the loss
    (`nn.sequence.variants`). `options` are those of `ModelOptions`.
    """

    def __init__(self, config: SequenceModelConfig, **options: Any):
        options = ModelOptions(**options)
        super().__init__(name="sequence_model", dtype=options.dtype, world=options.world)
        self.config = config
        self.variant = layers = VARIANTS[config.variant]
        common = {"seed": options.seed, "dtype": options.dtype}
        self.embedding = options.distribute(
            [
                Embedding(
                    rows, dim, TableUniform(options.seed, name), name=name, dtype=options.dtype
                )
                for name, rows, dim in embedding_tables(config)
            ]
        )
        dropout_seed = derive_seed(options.seed, "dropout", 0)
        dropout = (config.dropout_rate, dropout_seed) if config.dropout_rate else None
        self.user_dropout = Dropout(
            config.user_dropout_rate, seed=dropout_seed, name="user", dtype=options.dtype
        )
        if config.model_type == DIN:
            self.attention = layers.attention[config.attention](name="attention", **common)
        if config.model_type in (SIM, DIEN):
            self.evolution = layers.evolution(
                *(config.state_dim, config.aux_mlp_dims),
                name="interest_evolution",
                dropout=dropout,
                **common,
            )
        if config.model_type == SIM:
            self.long_history = layers.long_history(
                config.gsu, config.top_k, name="long_history", **common
            )
            if config.gsu == SOFT:
                self.stage_one = layers.classifier(
                    config.stage_one_mlp_dims, name="stage_one_mlp", dropout=dropout, **common
                )
        self.stage_two = layers.classifier(
            config.stage_two_mlp_dims, name="stage_two_mlp", dropout=dropout, **common
        )
        self._make_weights()

    def _make_weights(self) -> None:
        """Runs one sample without the lookup, which would be collective."""
        self.embedding.build(None)
        config, positions = self.config, self.config.num_positions
        width = config.embedding_dim * sum(hotnesses(config))
        vectors = arrange(
            config,
            tf.zeros([1, width], self.compute_dtype),
            tf.zeros([1, positions], tf.bool),
            config.num_negatives,
        )
        categories = tf.zeros([1, 1], tf.int32), tf.zeros([1, config.short_start], tf.int32)
        self._score(vectors, categories, place=None, for_losses=True)

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        """Scores samples; collective.

        Args:
            inputs: `user` and `target`, a [batch, 1] integer tensor for each feature; `positive`, a
                [batch, history_length] one for each of the item's features, right-aligned, with 0
                in front. `negative` is not read.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        return self._forward(inputs, training, for_losses=False).logits

    def forward(self, inputs, training: bool, weights: tf.Tensor | None = None) -> SequenceOutputs:
        """Computes the inputs of the losses; collective.

        Args:
            inputs: As `call` gets them, and `negative`, shaped like `positive`, if the model has an
                auxiliary loss ("sim" and "dien").
            weights: Those of the samples in training, [batch, 1], see `first_sample`.
        """
        return self._forward(inputs, training, for_losses=True, weights=weights)

    def _forward(
        self, inputs, training: bool, for_losses: bool, weights: tf.Tensor | None = None
    ) -> SequenceOutputs:
        config = self.config
        with_negatives = for_losses and config.num_negatives > 0
        vectors = look_up(self.embedding, config, inputs, with_negatives)
        place = None
        if training and (config.dropout_rate or config.user_dropout_rate):
            place = self.next_place(tf.shape(inputs.target[0])[0], weights)
        return self._score(vectors, self._categories(inputs), place, for_losses)

    def logits(self, embeddings: tf.Tensor, inputs) -> tf.Tensor:
        """Scores samples whose ids were looked up before.

        Args:
            embeddings: [batch, width] in the compute dtype, the vectors of each table side by side:
                user features, then for each item feature those of target and history.
            inputs: as `call` gets them, of which only `positive` is read (except by "no_history"),
                and of hard search the last feature of `target`.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        mask = history_mask(self.config, embeddings, inputs)
        vectors = arrange(self.config, embeddings, mask, num_negatives=0)
        return self._score(vectors, self._categories(inputs), place=None, for_losses=False).logits

    def logits_of_vectors(self, vectors: Vectors, categories, states: tf.Tensor) -> tf.Tensor:
        """Scores samples from their vectors and the states of their interests.

        Args:
            vectors: See `Vectors`; negatives are not read.
            categories: Ids that hard search compares: of target [batch, 1] and of the long history.
            states: [batch, steps, units], as `evolution.interests` returns them; not read by models
                without interests.

        Returns:
            Logits of a click, [batch, 1], at least float32.
        """
        return self._score(vectors, categories, None, for_losses=False, states=states).logits

    def _categories(self, inputs):
        """Returns the ids that hard search compares; None without hard search."""
        config = self.config
        if config.model_type != SIM or config.gsu != HARD:
            return None
        return inputs.target[-1], inputs.positive[-1][:, : config.long_seq_length]

    def _score(
        self,
        vectors: Vectors,
        categories,
        place: DropoutPlace | None,
        for_losses: bool,
        states: tf.Tensor | None = None,
    ) -> SequenceOutputs:
        """Returns logits from vectors; `place` is that of dropout, None without dropout.

        `states` are those of the interests, None to compute them.
        """
        config = self.config
        user, target, long, short, negatives, long_mask, short_mask = vectors
        if place is not None and config.user_dropout_rate:
            kept = self.user_dropout(tf.ones([tf.shape(target)[0], 1], target.dtype), place) > 0
            user = tf.where(kept, user, 0)
        seen, gsu_logits, aux = {"user": user, "target": target}, None, None
        side_by_side = self.variant.side_by_side
        if config.model_type == DIN:
            seen["short"] = self.attention(target, short, short_mask)
        if config.model_type == SIM:
            interest, pooled = self.long_history(target, long, long_mask, categories)
            if for_losses and pooled is not None:
                gsu_logits = precise(self.stage_one(side_by_side(**seen, short=pooled), place))
            seen["long"] = interest
        if config.model_type in (SIM, DIEN):
            if states is None:
                seen["short"], states = self.evolution(target, short, short_mask)
            else:
                seen["short"] = self.evolution.evolve(target, states, short_mask)
            if negatives is not None:
                aux = self.evolution.compare(states, short, negatives, short_mask, place)
        if config.history_product and config.num_positions:
            seen["product"] = target * mean_of_history(vectors)
        logits = precise(self.stage_two(side_by_side(**seen), place))
        return SequenceOutputs(logits, gsu_logits, aux)
