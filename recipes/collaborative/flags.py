"""Flags of neural collaborative filtering."""

import functools
from dataclasses import dataclass

from config.flag import FIXED, OWN, TRAIN, Need, Rules, Values, requires
from config.sections.evaluation import evaluates

_HAS_MLP = requires("model_type", "neumf", "mlp")
_NEUMF = requires("model_type", "neumf")
_SWEEPS = Need("with --batch_sizes", lambda flags: bool(flags.value("batch_sizes")))


def _check_layers(layers: tuple[int, ...]) -> None:
    if len(layers) < 2 or layers[0] % 2:
        text = ",".join(map(str, layers)) or "nothing"
        raise ValueError(
            "--layers starts with the width of the concatenated user and item vectors, an even "
            f"number, and has a hidden layer at least, got {text}"
        )


_training = functools.partial(Rules, modes=TRAIN)


@dataclass(frozen=True)
class CollaborativeFlags:
    """Model of interactions of users with items, and its evaluation."""

    model_type: str = Rules(choices=("neumf", "gmf", "mlp")).flag(
        "neumf",
        "type of the model; neumf: both branches; gmf: the product of user and item vectors; mlp: "
        "layers over them",
    )
    factors: int = Rules(at_least=1, needs=(requires("model_type", "neumf", "gmf"),)).flag(
        64, "size of the user and item vectors of GMF"
    )
    layers: tuple[int, ...] = Rules(
        at_least=1, check=_check_layers, needs=(_HAS_MLP,), spaced=True
    ).flag(
        (256, 256, 128, 64),
        "widths of the MLP's input and layers; the input is the concatenated user and item vectors",
    )
    dropout: float = _training(at_least=0, below=1, needs=(_HAS_MLP,)).flag(
        0.5, "dropout rate after each layer; 0: no dropout"
    )
    negative_samples: int = _training(resume=FIXED, at_least=0).flag(
        4, "negative items drawn per interaction, again in each epoch; 0: none"
    )
    negative_exponent: float = _training(resume=FIXED, at_least=0).flag(
        0.0,
        "exponent of the popularity of drawn negatives; the probability of an item is "
        "proportional to its number of interactions to this power: 0 is uniform; with a higher one "
        "popular items are drawn more often, and the model recommends them less",
    )
    valid_negative: int = Rules(
        resume=FIXED, at_least=1, modes=("train", "eval", "inference"), read_when=evaluates
    ).flag(
        100,
        "negatives in the candidate list of a held-out item; the first ones that the data set "
        "stores (by default at most all of them), or drawn if it stores none",
    )
    topk: int = Rules(
        resume=FIXED, at_least=1, modes=("train", "eval", "inference"), read_when=evaluates
    ).flag(10, "length of the ranking; held-out items within it are hits")
    threshold: float = _training(above=0, at_most=1, read_when=evaluates).flag(
        1.0,
        "hit rate at which training stops; the time to reach it is reported (time_to_target)",
    )
    grads_accumulated: int = _training(resume=FIXED, at_least=1).flag(
        1, "batches whose gradients are averaged per update; memory is that of one batch"
    )
    pretrained_gmf: str | None = _training(resume=OWN, needs=(_NEUMF,)).flag(
        None, "trained GMF that initializes NeuMF; a checkpoint, or a folder of checkpoints"
    )
    pretrained_mlp: str | None = _training(resume=OWN, needs=(_NEUMF,)).flag(
        None, "trained MLP that initializes NeuMF; a checkpoint, or a folder of checkpoints"
    )
    alpha: float = _training(
        resume=OWN,
        at_least=0,
        at_most=1,
        needs=(requires("pretrained_gmf"), requires("pretrained_mlp")),
    ).flag(0.5, "weight of the pretrained GMF's output; that of the MLP's is 1 - alpha")
    checkpoint_dir: str | None = Rules(
        read_when=lambda flags: bool(flags.value("checkpoint_dir"))
    ).flag(
        None,
        "folder of checkpoints to write, or to read; training saves there, keeps the best one "
        "(--keep_best) and writes its weights as model.pth (needs PyTorch); other modes load "
        "the best one, unless --restore_checkpoint_path names another",
    )
    opt_level: str | None = Rules(resume=OWN, choices=("O0", "O2")).flag(
        None, "precision; O2 (--amp) or O0 (--noamp); by default O2 on a GPU and O0 on a CPU"
    )
    batch_sizes: tuple[int, ...] = Rules(at_least=1, modes=("inference",)).flag(
        (),
        "batch sizes that --mode inference measures one after the other; the users and items are "
        "drawn at random, no data set is read",
    )
    n_users: int = Rules(at_least=1, needs=(_SWEEPS,), modes=("inference",)).flag(
        138493, "users of the model that --batch_sizes measures; by default those of a checkpoint"
    )
    n_items: int = Rules(at_least=1, needs=(_SWEEPS,), modes=("inference",)).flag(
        26744, "items of the model that --batch_sizes measures; by default those of a checkpoint"
    )
    local_rank: int | None = Rules(resume=OWN, at_least=0).flag(
        None,
        "rank of this process on its machine; must equal the one that the launcher (horovodrun, "
        "mpirun, srun) assigned",
    )


def _check_pretrained(flags: Values) -> None:
    missing = [n for n in ("pretrained_gmf", "pretrained_mlp") if not flags.value(n)]
    if len(missing) == 1:
        raise ValueError(
            f"NeuMF is initialized from a trained GMF and a trained MLP: --{missing[0]} is missing"
        )
    if missing or flags.value("mode") != "train":
        return
    for name in ("restore_checkpoint_path", "resume"):
        if flags.value(name) not in (None, "auto"):
            raise ValueError(
                f"--pretrained_gmf and --{name} both set the initial weights: pass only one of them"
            )


RULES = (_check_pretrained,)
