"""Flags of the models. A checkpoint stores and restores them."""

import functools
from dataclasses import dataclass
from typing import Any

from config.flag import FIXED, TRAIN, Rules, requires

_BINS = requires("numerical_embedding", "bins")
_CROSS = requires("interaction", "cross")


def _check_top_mlp_dims(dims: tuple[int, ...]) -> None:
    if not dims or dims[-1] != 1:
        text = ",".join(map(str, dims)) or "nothing"
        raise ValueError(f"--top_mlp_dims must end with 1, the click logit, got {text}")


_ranking = functools.partial(Rules, part="ranking")


@dataclass(frozen=True)
class ModelConfig:
    """Model."""

    interaction: str = _ranking(
        choices=("dot", "dot_custom", "dot_custom_cuda", "dot_tensorflow", "cross")
    ).flag(
        "dot",
        "feature interaction; dot: DLRM's dot products, by the fastest implementation available; "
        "dot_custom: by the fused op; dot_custom_cuda: by the fused op's GPU kernels only; "
        "dot_tensorflow: by TensorFlow operations; cross: DCNv2's low-rank cross layers",
    )
    embedding_dim: str = Rules(part="clicks").flag(
        "128",
        "columns of the embedding tables; one integer, a list 16,32,... with one per table (with "
        "cross layers), or a JSON file with such a list",
    )
    bottom_mlp_dims: tuple[int, ...] = _ranking(at_least=1).flag(
        (512, 256, 128), "layer sizes of the MLP over the numerical features"
    )
    top_mlp_dims: tuple[int, ...] = _ranking(at_least=1, check=_check_top_mlp_dims).flag(
        (1024, 1024, 512, 256, 1), "layer sizes of the MLP over the interactions"
    )
    num_cross_layers: int = _ranking(at_least=1, used_with=(_CROSS,)).flag(
        3, "number of cross layers"
    )
    cross_layer_projection_dim: int = _ranking(at_least=1, used_with=(_CROSS,)).flag(
        512, "rank of the weight matrices of the cross layers"
    )
    numerical_embedding: str = _ranking(choices=("none", "bins")).flag(
        "none",
        "vectors of the numerical features; none: the bottom MLP alone reads the numbers; bins: "
        "each number becomes a vector, too, by a piecewise-linear encoding over the bins of the "
        "data set's encoder (preproc.transcode); DLRM multiplies it with the other vectors, DCNv2 "
        "reads it in place of the bottom MLP's output",
    )
    numerical_bins: int = _ranking(at_least=1, special=0, used_with=(_BINS,)).flag(
        0, "largest number of bins of a numerical feature; 0: all of the data set's encoder"
    )
    wide: bool = _ranking().flag(
        False,
        "add a linear term of all features to the logit; each embedding table has one more column",
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
    embedding_zeros_initializer: bool = _ranking(modes=TRAIN).flag(
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
