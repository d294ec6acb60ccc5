"""Flags of the models of user histories."""

from dataclasses import dataclass

from config.flag import TRAIN, Rules, Values, requires

_SIM = requires("model_type", "sim")
_PAPER = requires("variant", "paper")
_HAS_HISTORY = requires("model_type", "sim", "dien", "din")


def _searches_softly(flags: Values) -> bool:
    return _SIM.holds(flags) and bool(flags.value("gsu") == "soft")


@dataclass(frozen=True)
class SequentialFlags:
    """Model of user histories."""

    model_type: str = Rules(choices=("sim", "dien", "din", "no_history")).flag(
        "sim",
        "type of the model; sim: search in the long history, DIEN over the short one; no_history: "
        "the user and the target item alone, a baseline",
    )
    stage_one_mlp_dims: tuple[int, ...] = Rules(at_least=1, read_when=_searches_softly).flag(
        (200,), "hidden layers of the MLP over the search result (sim)"
    )
    stage_two_mlp_dims: tuple[int, ...] = Rules(at_least=1).flag(
        (200, 80), "hidden layers of the MLP that computes the score"
    )
    aux_mlp_dims: tuple[int, ...] = Rules(
        at_least=1, modes=TRAIN, read_when=requires("model_type", "sim", "dien").holds
    ).flag((100, 50), "hidden layers of the MLP of DIEN's auxiliary loss (sim, dien)")
    long_seq_length: int = Rules(at_least=1, read_when=_SIM.holds).flag(
        90, "history items that are searched (sim); the later ones form the short history"
    )
    gsu: str = Rules(choices=("soft", "hard"), needs=(_SIM,)).flag(
        "soft",
        "search of the long history (sim); soft: by inner product; hard: by the last feature of "
        "the target item, its category",
    )
    gsu_top_k: int = Rules(at_least=1, needs=(_SIM,)).flag(
        50, "number of items that the search selects (sim)"
    )
    din_attention: str = Rules(
        choices=("dot", "unit"), needs=(requires("model_type", "din"),)
    ).flag(
        "dot",
        "attention over the history (din); dot: inner product; unit: DIN's activation unit",
    )
    history_product: bool = Rules(needs=(_PAPER, _HAS_HISTORY)).flag(
        False,
        "the score also reads the target times the mean of the history; elementwise: of few "
        "samples, the MLP does not learn such a product",
    )
    user_dropout_rate: float = Rules(at_least=0, below=1, modes=TRAIN).flag(
        0.0,
        "share of samples whose user features are hidden in training; the few samples of a user "
        "are learned by heart, and the history describes the user",
    )
