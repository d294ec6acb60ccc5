"""Flags of the models. A checkpoint stores and restores them."""

from dataclasses import dataclass
from typing import Any

from config.flag import FIXED, TRAIN, Rules


@dataclass(frozen=True)
class ModelConfig:
    """Model."""

    embedding_dim: str = Rules(part="clicks").flag(
        "128",
        "columns of the embedding tables; one integer, a list 16,32,... with one per table (with "
        "cross layers), or a JSON file with such a list",
    )
    variant: str = Rules(part="clicks", choices=("paper", "nvidia")).flag(
        "paper",
        "formulas of the model; paper: after the papers, with the exceptions that "
        "docs/explanation/differences.md lists; nvidia: those of NVIDIA's recipes: DLRM without "
        "numerical features has no trained constant vector in place of the bottom MLP's output; "
        "SIM's layers, loss and weight decay, and its --optimizer adam moves all rows of the "
        "tables",
    )
    dropout_rate: float = Rules(part="clicks", at_least=0, below=1, special=-1, modes=TRAIN).flag(
        -1.0,
        "dropout rate of the hidden units of the MLPs; -1: no dropout; of DLRM and DCNv2 those of "
        "the top MLP",
    )
    embedding_trainable: bool = Rules(resume=FIXED, modes=TRAIN).flag(
        True, "update the embedding tables during training"
    )
    embedding_zeros_initializer: bool = Rules(part="ranking", modes=TRAIN).flag(
        False, "initialize the embedding tables with zeros; faster, for benchmarks and debugging"
    )


def canonical_value(name: str, value: Any) -> Any:
    """Returns a model flag's value without the choice of an implementation: `dot` for `dot_*`."""
    return "dot" if name == "interaction" and str(value).startswith("dot_") else value


def parse_embedding_dims(text: str, num_tables: int) -> tuple[int, ...]:
    """Returns the columns of each table from `--embedding_dim`: one integer, or a list.

    Raises:
        ValueError: the text is not a list of positive integers, one per table or one in all.
    """
    try:
        dims = [int(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--embedding_dim must be an integer, a list like 16,32 or a JSON file with a list of "
            f"integers, got {text!r}"
        ) from None
    if len(dims) == 1:
        dims = dims * num_tables
    if len(dims) != num_tables:
        raise ValueError(
            f"--embedding_dim lists {len(dims)} sizes, the data set has {num_tables} categorical "
            "features: pass one integer for all, or one per feature"
        )
    if any(dim < 1 for dim in dims):
        raise ValueError(f"--embedding_dim must be at least 1, got {min(dims)}")
    return tuple(dims)
