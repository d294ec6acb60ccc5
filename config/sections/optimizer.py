"""Flags of the loss, the optimizers and their learning rate schedule."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from config.flag import FIXED, TRAIN, Need, Rules, Values, requires


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """Facts of an optimizer for flags, presets and plans; its updates are a class of its name in
    `nn.optim.optimizers`.

    Attributes:
        default_rate: learning rate of `--preset small` of dense weights, or of tables.
        options: argument of the class -> flag.
        state_bytes_per_element, state_bytes_per_row: memory of the state of a table.
        scratch_bytes_per_element: memory of a step over a table.
        of_tables: optimizer of the tables next to this one of the dense weights; None: this one.
        is_of_dense: whether it moves dense weights.
    """

    default_rate: float
    options: Mapping[str, str] = field(default_factory=dict)
    state_bytes_per_element: int = 0
    state_bytes_per_row: int = 0
    scratch_bytes_per_element: int = 0
    of_tables: str | None = None
    is_of_dense: bool = True


_ADAGRAD = {"initial_accumulator": "adagrad_initial_accumulator", "epsilon": "epsilon"}
_ADAM = {name: name for name in ("beta1", "beta2", "epsilon")}

# Optimizers by the name that flags give them.
OPTIMIZERS = {
    "sgd": OptimizerKind(default_rate=0.5),
    "adagrad": OptimizerKind(default_rate=0.02, options=_ADAGRAD, state_bytes_per_element=4),
    "rowwise_adagrad": OptimizerKind(
        default_rate=0.02, options=_ADAGRAD, state_bytes_per_row=4, is_of_dense=False
    ),
    "adam": OptimizerKind(
        default_rate=0.002,
        options=_ADAM,
        state_bytes_per_element=8,
        scratch_bytes_per_element=8,
        of_tables="lazy_adam",
    ),
    "lazy_adam": OptimizerKind(default_rate=0.002, options=_ADAM, state_bytes_per_element=8),
}
_DENSE = tuple(name for name, kind in OPTIMIZERS.items() if kind.is_of_dense)


def _reads(flag: str) -> tuple[Need]:
    """Returns the need of an optimizer with the option of a flag."""
    names = [name for name, kind in OPTIMIZERS.items() if flag in kind.options.values()]
    # Without variants such as lazy_adam.
    main = [name for name in names if not any(name.endswith(f"_{other}") for other in names)]
    return (
        Need(
            f"with --optimizer or --embedding_optimizer {' or '.join(main)}",
            lambda flags: bool(
                {flags.value("optimizer"), flags.value("embedding_optimizer")} & set(names)
            ),
        ),
    )


_training = functools.partial(Rules, modes=TRAIN)


@dataclass(frozen=True)
class OptimizerConfig:
    """Loss, optimizers and learning rate schedule."""

    training_loss: str = _training(
        resume=FIXED, part="ranking", choices=("log_loss", "listwise", "pairwise")
    ).flag(
        "log_loss",
        "loss of a training; log_loss: of each sample; listwise: softmax over the samples of a "
        "group of --group_column; pairwise: over its pairs of a positive and a negative; the last "
        "two learn the order within a group only: their predictions are not probabilities",
    )
    optimizer: str = _training(resume=FIXED, choices=_DENSE).flag(
        "sgd",
        "optimizer of the dense weights; lazy_adam: Adam, whose tables move in the rows of the "
        "batch only",
    )
    embedding_optimizer: str = _training(
        resume=FIXED,
        choices=("auto", *OPTIMIZERS),
        used_with=(requires("embedding_trainable"),),
    ).flag(
        "auto",
        "optimizer of the embedding tables; auto matches --optimizer: sgd, adagrad or lazy_adam",
    )
    learning_rate: float = _training(at_least=0).flag(24.0, "learning rate after the warm-up")
    embedding_learning_rate: float | None = _training(
        at_least=0, used_with=(requires("embedding_trainable"),)
    ).flag(None, "learning rate of the embedding tables; by default --learning_rate")
    warmup_steps: int = _training(at_least=0).flag(8000, "steps of linear learning rate warm-up")
    decay_start_step: int = _training(at_least=0).flag(
        48000, "step at which the decay to zero starts; the decay is polynomial"
    )
    decay_steps: int = _training(at_least=0).flag(
        24000, "length of the decay in steps; 0: no decay"
    )
    decay_power: float = _training(above=0).flag(2.0, "exponent of the polynomial decay")
    beta1: float = _training(at_least=0, below=1, used_with=_reads("beta1")).flag(
        0.9, "decay rate of Adam's first moment"
    )
    beta2: float = _training(at_least=0, below=1, used_with=_reads("beta2")).flag(
        0.999, "decay rate of Adam's second moment"
    )
    epsilon: float = _training(at_least=0, used_with=_reads("epsilon")).flag(
        1e-7, "constant added to the denominator of Adam and Adagrad"
    )
    weight_decay: float = _training(at_least=0).flag(
        0.0,
        "decoupled weight decay coefficient (AdamW); of tables only the rows of the batch decay, "
        "all rows with --embedding_optimizer adam; with --variant nvidia all rows, and not "
        "multiplied by the learning rate",
    )
    embedding_weight_decay: float | None = _training(
        at_least=0, used_with=(requires("embedding_trainable"),)
    ).flag(None, "weight decay of the embedding tables; by default --weight_decay")
    adagrad_initial_accumulator: float = _training(
        at_least=0, used_with=_reads("adagrad_initial_accumulator")
    ).flag(0.1, "initial value of Adagrad's sum of squared gradients")

    @property
    def sparse_optimizer(self) -> str:
        """The tables' optimizer, with `auto` resolved."""
        if self.embedding_optimizer != "auto":
            return self.embedding_optimizer
        return OPTIMIZERS[self.optimizer].of_tables or self.optimizer

    def options_of(self, optimizer: str) -> dict[str, Any]:
        """Returns the arguments of an optimizer's class that flags set."""
        return {k: getattr(self, flag) for k, flag in OPTIMIZERS[optimizer].options.items()}


def check_loss(flags: Values) -> None:
    """Raises ValueError for a loss of groups without groups."""
    loss = flags.value("training_loss")
    if flags.value("mode") != "train" or loss == "log_loss":
        return
    if flags.value("group_column") is None:
        raise ValueError(
            f"--loss {loss} orders the samples of a group: name the feature with the group's id, "
            "such as the user, with --group_column"
        )
    if flags.value("dataset_type") == "synthetic":
        raise ValueError(
            f"--loss {loss} reads the samples of a group together, expected a stored data set, got "
            "--dataset_type synthetic: write the samples with python -m dataloading.synthetic"
        )


def check_weight_decay(flags: Values) -> None:
    """Raises ValueError for a decay that is too large for the rate, which a preset may set."""
    decay = max(flags.value("weight_decay"), flags.value("embedding_weight_decay") or 0)
    rate = max(flags.value("learning_rate"), flags.value("embedding_learning_rate") or 0)
    if rate * decay >= 1:
        raise ValueError(
            f"--weight_decay (or --embedding_weight_decay) {decay:g} times --learning_rate (or "
            f"--embedding_learning_rate) {rate:g} is 1 or more, so that a step would reverse the "
            "sign of weights: pass a smaller weight decay"
        )
