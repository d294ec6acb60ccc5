"""Flags of the models of user histories."""

from dataclasses import dataclass

from config.flag import FIXED, OWN, TRAIN, Rules, Values, requires
from config.sections.evaluation import evaluates

_SIM = requires("model_type", "sim")
_PAPER = requires("variant", "paper")
_HAS_HISTORY = requires("model_type", "sim", "dien", "din")


def _searches_softly(flags: Values) -> bool:
    return _SIM.holds(flags) and bool(flags.value("gsu") == "soft")


def _evaluates_training_split(flags: Values) -> bool:
    return flags.value("mode") != "train" and bool(flags.value("eval_mapping") == "train")


@dataclass(frozen=True)
class SequentialFlags:
    """Model of user histories, its samples and its evaluation."""

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
    prefetch_test_size: int = Rules(resume=OWN, at_least=0, read_when=evaluates).flag(
        2, "batches read ahead of the evaluation step"
    )
    num_parallel_calls: int | None = Rules(resume=OWN, is_local=True, at_least=1).flag(
        None, "batches decoded in parallel; by default half the cores of the process, at least 2"
    )
    prebatch_train_size: int = Rules(
        resume=OWN,
        at_least=0,
        read_when=lambda flags: flags.value("mode") == "train" or _evaluates_training_split(flags),
    ).flag(0, "samples per record of the training files; 0 takes the number from the feature spec")
    prebatch_test_size: int = Rules(
        resume=OWN,
        at_least=0,
        read_when=lambda flags: evaluates(flags) and not _evaluates_training_split(flags),
    ).flag(0, "samples per record of the other files; 0 takes the number from the feature spec")
    drop_remainder: bool = Rules(resume=FIXED, modes=TRAIN).flag(
        False, "drop the last training batch of an epoch if it is incomplete"
    )
    repeat_count: int = Rules(resume=FIXED, at_least=0, modes=TRAIN).flag(
        0, "passes over the training samples per epoch; 0 means 1"
    )
    disable_cache: bool = Rules(resume=OWN).flag(
        False, "no effect: each run decodes the samples once, into temporary files (TMPDIR)"
    )
    evaluate_training_rows: bool = Rules(modes=TRAIN, read_when=evaluates).flag(
        True, "also evaluate on the training samples; logs train_auc and train_loss"
    )
    valid_negative: int = Rules(modes=("eval",), at_least=0, resume=FIXED).flag(
        0,
        "negatives among which each clicked item is ranked; drawn of the items that the user never "
        "clicked; reports HR@k, NDCG@k and recall@k (--topk), and those of a ranking by "
        "popularity; 0: no ranking",
    )
    topk: int = Rules(modes=("eval",), at_least=1, resume=FIXED).flag(
        10, "length of the rankings of --full_ranking and --valid_negative"
    )
