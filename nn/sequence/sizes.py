"""Sizes and tables of a sequential recommender; no TensorFlow."""

from dataclasses import dataclass

SIM, DIEN, DIN, NO_HISTORY = "sim", "dien", "din", "no_history"
SOFT, HARD = "soft", "hard"
DOT, UNIT = "dot", "unit"
PAPER, NVIDIA = "paper", "nvidia"


@dataclass(frozen=True)
class SequenceModelConfig:
    """Shape of a sequential recommender.

    A history of `history_length` positions has padding first, then the oldest event. The long
    history of `sim` is its first `long_seq_length` positions, the short one the rest; in the other
    models the short history is all of it.

    Attributes:
        model_type: "sim", "dien", "din", or "no_history", which sees user and target only.
        user_features: Names of the user's features, one table each; may be empty.
        item_features: Names of the features of target and histories, one table each. The first
            one's id 0 is padding; the last one is the category of hard search.
        long_seq_length: Positions of the long history ("sim"); 1 to `history_length` - 1.
        stage_one_mlp_dims: Hidden layers after the soft search ("sim").
        aux_mlp_dims: Hidden layers of the auxiliary loss ("sim", "dien").
        top_k: Items of the long history that the search selects at most ("sim").
        gsu: The search ("sim"): "soft" by a trained inner product, or "hard" by category.
        attention: Weights of the history ("din"): "dot" product or activation "unit".
        history_product: Whether the score also reads the target times the mean of the history.
        dropout_rate: Share of hidden units that a training step leaves out, in [0, 1).
        user_dropout_rate: Share of samples whose user a training step replaces by zeros, in [0, 1).
        variant: Layers and loss (`nn.sequence.variants`): "paper", after the papers, or "nvidia".

    Raises:
        ValueError: The variant does not have the search.
    """

    model_type: str
    user_features: tuple[str, ...]
    user_cardinalities: tuple[int, ...]
    item_features: tuple[str, ...]
    item_cardinalities: tuple[int, ...]
    embedding_dim: int = 16
    history_length: int = 100
    long_seq_length: int = 90
    stage_one_mlp_dims: tuple[int, ...] = (200,)
    stage_two_mlp_dims: tuple[int, ...] = (200, 80)
    aux_mlp_dims: tuple[int, ...] = (100, 50)
    top_k: int = 50
    gsu: str = SOFT
    attention: str = DOT
    history_product: bool = False
    dropout_rate: float = 0.0
    user_dropout_rate: float = 0.0
    variant: str = PAPER

    def __post_init__(self):
        if (self.variant, self.model_type, self.gsu) == (NVIDIA, SIM, HARD):
            raise ValueError(
                "variant nvidia has soft search only, got gsu 'hard': use gsu soft or variant paper"
            )

    @property
    def item_dim(self) -> int:
        """Elements of an item's vector: the embeddings of its features."""
        return len(self.item_features) * self.embedding_dim

    @property
    def state_dim(self) -> int:
        """Width of the states of DIEN's block; 6 is the factor of NVIDIA's recipe."""
        return 6 * self.embedding_dim if self.variant == NVIDIA else self.item_dim

    @property
    def num_positions(self) -> int:
        """Positions of the history that the model reads."""
        return 0 if self.model_type == NO_HISTORY else self.history_length

    @property
    def short_start(self) -> int:
        """First position of the short history."""
        return self.long_seq_length if self.model_type == SIM else 0

    @property
    def num_negatives(self) -> int:
        """Last positions of the negative history that the auxiliary loss reads.

        The first position of the short history has none before it that could predict it.
        """
        if self.model_type not in (SIM, DIEN):
            return 0
        return self.history_length - self.short_start - 1


def embedding_tables(config: SequenceModelConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, columns) of each table: the user's features, then the item's."""
    names = config.user_features + config.item_features
    rows = config.user_cardinalities + config.item_cardinalities
    return [(name, n, config.embedding_dim) for name, n in zip(names, rows, strict=True)]


def hotnesses(config: SequenceModelConfig) -> list[int]:
    """Returns for each lookup its ids per sample in a training step; ids are not combined."""
    item = 1 + config.num_positions + config.num_negatives
    return [1] * len(config.user_features) + [item] * len(config.item_features)
