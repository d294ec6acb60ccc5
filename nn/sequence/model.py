"""Sequential recommenders: SIM, DIEN, DIN, and a baseline without history."""

from typing import NamedTuple

import tensorflow as tf

from nn.embedding.planner import Plan
from nn.embedding.weights import TableUniform
from nn.embedding_model import StatefulDropoutModel, spread_tables
from nn.precision import precise
from nn.sequence.attention import ActivationUnit, DotAttention
from nn.sequence.config import (
    DIEN,
    DIN,
    DOT,
    HARD,
    SIM,
    SOFT,
    SequenceModelConfig,
    embedding_tables,
    feature_table_map,
    hotnesses,
)
from nn.sequence.dien import AuxiliaryOutputs, InterestEvolution
from nn.sequence.lookup import Vectors, arrange, history_mask, look_up
from nn.sequence.mlp import Classifier
from nn.sequence.search import LongHistory
from runtime.cluster.distributed import World
from runtime.hardware.device import derive_seed


class SequenceOutputs(NamedTuple):
    """Inputs of the losses of a batch (nn/sequence/loss.py).

    logits: of a click, [batch, 1] float32.
    gsu_logits: those of the soft search's classifier, [batch, 1] float32; None without one.
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
    Modeling with Lifelong Sequential Behavior Data", 2020. There is no batch normalisation, and the
    user has tables.

    Args:
        config: sizes.
        seed: of the initial weights and of dropout.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16", "mixed_float16"; "float64" is for
            tests of gradients, and its logits are float64, too.
        world: the ranks among which tables are spread.
        plan: who holds which table (`embedding_tables`, `feature_table_map`, `hotnesses`, none
            combined); None: the default one of `nn.embedding.planner.plan`.
        exchange_dtype: dtype of embedding vectors between ranks; None: the compute dtype.
        embedding_trainable: whether tables get gradients.
    """

    def __init__(
        self,
        config: SequenceModelConfig,
        *,
        seed: int = 0,
        dtype: str = "float32",
        world: World = World(),
        plan: Plan | None = None,
        exchange_dtype: str | None = None,
        embedding_trainable: bool = True,
    ):
        super().__init__(name="sequence_model", dtype=dtype)
        self.config = config
        self.embedding = spread_tables(
            embedding_tables(config),
            feature_table_map(config),
            lambda name: TableUniform(seed, name),
            world=world,
            plan=plan,
            exchange_dtype=exchange_dtype,
            trainable=embedding_trainable,
            dtype=dtype,
        )
        # A rank's samples are its own, and so are the units that they leave out.
        common = {"seed": seed, "dtype": dtype}
        dropped = {
            "dropout_rate": config.dropout_rate,
            "dropout_seed": derive_seed(seed, "dropout", world.rank),
        }
        if config.model_type == DIN and config.attention == DOT:
            self.attention = DotAttention(name="attention", dtype=dtype)
        elif config.model_type == DIN:
            self.attention = ActivationUnit(name="attention", **common)
        if config.model_type in (SIM, DIEN):
            self.evolution = InterestEvolution(
                config.item_dim, config.aux_mlp_dims, name="interest_evolution", **common
            )
        if config.model_type == SIM:
            self.long_history = LongHistory(config.gsu, config.top_k, name="long_history", **common)
            if config.gsu == SOFT:
                self.stage_one = Classifier(
                    config.stage_one_mlp_dims, name="stage_one_mlp", **common, **dropped
                )
        self.stage_two = Classifier(
            config.stage_two_mlp_dims, name="stage_two_mlp", **common, **dropped
        )
        self._make_weights()

    def _make_weights(self) -> None:
        """Runs one sample, so that every weight exists before the first step.

        Without the lookup, which would be collective.
        """
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
        self._score(vectors, categories, step=None, for_losses=True)

    def call(self, inputs, training: bool = False) -> tf.Tensor:
        """Scores rows; collective where the tables are spread over ranks.

        Args:
            inputs: `user` and `target`, a [batch, 1] integer tensor for each feature; `positive`, a
                [batch, history_length] one for each of the item's features, right-aligned, with 0
                in front. `negative` is not read.
            training: drop units out.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        return self._forward(inputs, training, for_losses=False).logits

    def forward(self, inputs, training: bool) -> SequenceOutputs:
        """Computes the inputs of the losses; collective where the tables are spread over ranks.

        Args:
            inputs: as `call` gets them, and `negative`, shaped like `positive`, where the model has
                an auxiliary loss ("sim" and "dien").
            training: drop units out.
        """
        return self._forward(inputs, training, for_losses=True)

    def _forward(self, inputs, training: bool, for_losses: bool) -> SequenceOutputs:
        config = self.config
        with_negatives = for_losses and config.num_negatives > 0
        vectors = look_up(self.embedding, config, inputs, with_negatives)
        step = None
        if training and config.dropout_rate:
            step = self.steps_seen.assign_add(1)
        return self._score(vectors, self._categories(inputs), step, for_losses)

    def logits(self, embeddings: tf.Tensor, inputs) -> tf.Tensor:
        """Scores rows whose ids were looked up before.

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
        return self._score(vectors, self._categories(inputs), step=None, for_losses=False).logits

    def _categories(self, inputs):
        """Returns ids that hard search compares, see `_score`; None without hard search."""
        config = self.config
        if config.model_type != SIM or config.gsu != HARD:
            return None
        return inputs.target[-1], inputs.positive[-1][:, : config.long_seq_length]

    def _score(
        self, vectors: Vectors, categories, step: tf.Tensor | None, for_losses: bool
    ) -> SequenceOutputs:
        """Logits from vectors.

        Args:
            vectors: of the batch.
            categories: ids of the last item feature, of the target [batch, 1] and of the long
                history [batch, long_seq_length] (hard search).
            step: of the training, for dropout; None where nothing is dropped.
            for_losses: compute what only losses need, too.
        """
        config = self.config
        user, target, long, short, negatives, long_mask, short_mask = vectors
        seen, gsu_logits, aux = [user, target], None, None
        if config.model_type == DIN:
            seen.append(self.attention(target, short, short_mask))
        if config.model_type == SIM:
            interest, pooled = self.long_history(target, long, long_mask, categories)
            seen.append(interest)
            if for_losses and pooled is not None:
                stage_one = tf.concat([user, target, pooled], axis=1)
                gsu_logits = precise(self.stage_one(stage_one, step))
        if config.model_type in (SIM, DIEN):
            interest, states = self.evolution(target, short, short_mask)
            seen.append(interest)
            if negatives is not None:
                aux = self.evolution.compare(states, short, negatives, short_mask)
        logits = precise(self.stage_two(tf.concat(seen, axis=1), step))
        return SequenceOutputs(logits, gsu_logits, aux)
