"""Flags of the models that rank by numerical features and ids."""

from dataclasses import dataclass

from config.flag import FIXED, TRAIN, Rules, flag, requires

_BINS = requires("numerical_embedding", "bins")
_CROSS = requires("interaction", "cross")


def _check_top_mlp_dims(dims: tuple[int, ...]) -> None:
    if not dims or dims[-1] != 1:
        text = ",".join(map(str, dims)) or "nothing"
        raise ValueError(f"--top_mlp_dims must end with 1, the click logit, got {text}")


@dataclass(frozen=True)
class RankingFlags:
    """Model of numerical features and ids, and its samples."""

    interaction: str = Rules(
        choices=("dot", "dot_custom", "dot_custom_cuda", "dot_tensorflow", "cross")
    ).flag(
        "dot",
        "feature interaction; dot: DLRM's dot products, by the fastest implementation available; "
        "dot_custom: by the fused op; dot_custom_cuda: by the fused op's GPU kernels only; "
        "dot_tensorflow: by TensorFlow operations; cross: DCNv2's low-rank cross layers",
    )
    bottom_mlp_dims: tuple[int, ...] = Rules(at_least=1).flag(
        (512, 256, 128), "layer sizes of the MLP over the numerical features"
    )
    top_mlp_dims: tuple[int, ...] = Rules(at_least=1, check=_check_top_mlp_dims).flag(
        (1024, 1024, 512, 256, 1), "layer sizes of the MLP over the interactions"
    )
    num_cross_layers: int = Rules(at_least=1, used_with=(_CROSS,)).flag(3, "number of cross layers")
    cross_layer_projection_dim: int = Rules(at_least=1, used_with=(_CROSS,)).flag(
        512, "rank of the weight matrices of the cross layers"
    )
    numerical_embedding: str = Rules(choices=("none", "bins")).flag(
        "none",
        "vectors of the numerical features; none: the bottom MLP alone reads the numbers; bins: "
        "each number becomes a vector, too, by a piecewise-linear encoding over the bins of the "
        "data set's encoder (preproc.transcode); DLRM multiplies it with the other vectors, DCNv2 "
        "reads it in place of the bottom MLP's output",
    )
    numerical_bins: int = Rules(at_least=1, special=0, used_with=(_BINS,)).flag(
        0, "largest number of bins of a numerical feature; 0: all of the data set's encoder"
    )
    wide: bool = flag(
        False,
        "add a linear term of all features to the logit; each embedding table has one more column",
    )
    shuffle_window_rows: int = Rules(
        resume=FIXED,
        at_least=1,
        multiple_of=8192,
        modes=TRAIN,
        used_with=(requires("shuffle"),),
    ).flag(524_288, "samples that --shuffle permutes at a time; a multiple of 8192")
