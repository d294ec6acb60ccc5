"""Sizes and tables of a sequential recommender; no TensorFlow."""

from dataclasses import dataclass

SIM, DIEN, DIN, NO_HISTORY = "sim", "dien", "din", "no_history"
MODEL_TYPES = (SIM, DIEN, DIN, NO_HISTORY)

SOFT, HARD = "soft", "hard"
SEARCHES = (SOFT, HARD)

DOT, UNIT = "dot", "unit"
ATTENTIONS = (DOT, UNIT)

PAPER, NVIDIA = "paper", "nvidia"
VARIANT_NAMES = (PAPER, NVIDIA)


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
        dropout_rate: Share of hidden units that a training step leaves out, in [0, 1).
        variant: Layers and loss (`nn.sequence.variants`): "paper", after the papers, or "nvidia".

    Raises:
        ValueError: Sizes or names that do not fit together.
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
    dropout_rate: float = 0.0
    variant: str = PAPER

    def __post_init__(self):
        choices = {
            "model_type": MODEL_TYPES,
            "gsu": SEARCHES,
            "attention": ATTENTIONS,
            "variant": VARIANT_NAMES,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if (self.variant, self.model_type, self.gsu) == (NVIDIA, SIM, HARD):
            raise ValueError(
                "variant nvidia has soft search only, got gsu 'hard': use gsu soft or variant paper"
            )
        self._check_features()
        self._check_sizes()
        if self.model_type == SIM and not 1 <= self.long_seq_length < self.history_length:
            raise ValueError(
                "sim cuts a history into a long and a short part of at least one position each: "
                f"long_seq_length must be 1 to {self.history_length - 1} of {self.history_length} "
                f"positions, got {self.long_seq_length}; without a long part use model_type dien"
            )

    def _check_features(self) -> None:
        if not self.item_features:
            raise ValueError("item_features is empty: a target item needs at least its id")
        for kind in ("user", "item"):
            names = getattr(self, f"{kind}_features")
            cardinalities = getattr(self, f"{kind}_cardinalities")
            if len(names) != len(cardinalities) or min(cardinalities, default=1) < 1:
                raise ValueError(
                    f"expected a cardinality of at least 1 for each of the {kind} features "
                    f"{names}, got {cardinalities}"
                )
        names = self.user_features + self.item_features
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"features {twice} occur twice: each has a table of its own, and names it"
            )

    def _check_sizes(self) -> None:
        for name in ("embedding_dim", "history_length", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims"):
            if any(dim < 1 for dim in getattr(self, name)):
                raise ValueError(f"{name} are sizes of at least 1, got {getattr(self, name)}")
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"dropout_rate must be in [0, 1), got {self.dropout_rate}")

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
