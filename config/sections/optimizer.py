"""Flags of the loss, the optimizers and their learning rate schedule."""

import functools
from dataclasses import dataclass

from config.flag import FIXED, TRAIN, Need, Rules, Values, requires


def _uses(flags: Values, kind: str) -> bool:
    return kind in flags.value("optimizer") or kind in flags.value("embedding_optimizer")


_ADAM = Need(
    "with --optimizer or --embedding_optimizer adam",
    lambda flags: _uses(flags, "adam"),
)
_ADAGRAD = Need(
    "with --optimizer or --embedding_optimizer adagrad", lambda flags: _uses(flags, "adagrad")
)
_ADAM_OR_ADAGRAD = Need(
    "with --optimizer or --embedding_optimizer adam or adagrad",
    lambda flags: _ADAM.holds(flags) or _ADAGRAD.holds(flags),
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
    optimizer: str = _training(resume=FIXED, choices=("sgd", "adagrad", "adam", "lazy_adam")).flag(
        "sgd",
        "optimizer of the dense weights; lazy_adam: Adam, whose tables move in the rows of the "
        "batch only",
    )
    embedding_optimizer: str = _training(
        resume=FIXED,
        choices=("auto", "sgd", "adagrad", "rowwise_adagrad", "adam", "lazy_adam"),
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
    beta1: float = _training(at_least=0, below=1, used_with=(_ADAM,)).flag(
        0.9, "decay rate of Adam's first moment"
    )
    beta2: float = _training(at_least=0, below=1, used_with=(_ADAM,)).flag(
        0.999, "decay rate of Adam's second moment"
    )
    epsilon: float = _training(at_least=0, used_with=(_ADAM_OR_ADAGRAD,)).flag(
        1e-7, "constant added to the denominator of Adam and Adagrad"
    )
    weight_decay: float = _training(at_least=0).flag(
        0.0,
        "decoupled weight decay coefficient (AdamW); of tables only the rows of the batch decay, "
        "all rows with --embedding_optimizer adam; with --variant nvidia all rows, and not "
        "multiplied by the learning rate",
    )
    adagrad_initial_accumulator: float = _training(at_least=0, used_with=(_ADAGRAD,)).flag(
        0.1, "initial value of Adagrad's sum of squared gradients"
    )

    @property
    def sparse_optimizer(self) -> str:
        """The tables' optimizer, with `auto` resolved."""
        if self.embedding_optimizer != "auto":
            return self.embedding_optimizer
        return {"adam": "lazy_adam"}.get(self.optimizer, self.optimizer)


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
    decay = flags.value("weight_decay")
    rate = max(flags.value("learning_rate"), flags.value("embedding_learning_rate") or 0)
    if rate * decay >= 1:
        raise ValueError(
            f"--weight_decay {decay:g} times --learning_rate (or --embedding_learning_rate) "
            f"{rate:g} is 1 or more, so that a step would reverse the sign of weights: pass a "
            "smaller --weight_decay"
        )
