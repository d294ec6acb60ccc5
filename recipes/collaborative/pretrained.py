"""NeuMF started from a trained GMF and a trained MLP."""

from functools import partial
from pathlib import Path

from distributed_embeddings.collectives import World

from nn.ncf.model import NCFModel
from nn.ncf.sizes import GMF, MLP, NEUMF
from runtime import checkpoint
from runtime.cluster.distributed import run_on_all_ranks


def start_from(
    model: NCFModel, gmf: Path, mlp: Path, alpha: float = 0.5, world: World = World()
) -> None:
    """Sets the weights of a NeuMF to those of its two branches, trained alone; collective.

    The first logits are alpha * logit of GMF + (1 - alpha) * logit of the MLP (He et al., 2017,
    section 3.4.1).

    Args:
        gmf, mlp: Checkpoints of the other two, of the same sizes, trained on any number of ranks.
        alpha: Weight of GMF, in [0, 1].

    Raises:
        CollectiveError: On every rank: a checkpoint is damaged or of another model, or this model
            is not a NeuMF.
    """
    bias, biases = model.output_layer.bias, []
    for path, kind, branch, share in ((gmf, GMF, "gmf", alpha), (mlp, MLP, "mlp", 1 - alpha)):
        # One after the other, so that no rank waits in a collective that another never reaches.
        run_on_all_ranks(world, partial(_restore, model, path, kind, branch, world))
        kernel = model.output_layer.kernels[branch]
        kernel.assign(share * kernel)
        biases.append(share * bias)
    bias.assign(sum(biases))


def _restore(model: NCFModel, path: Path, kind: str, branch: str, world: World) -> None:
    if model.config.model_type != NEUMF:
        raise ValueError(f"only {NEUMF} has two branches to set, this is {model.config.model_type}")
    model_type = checkpoint.describe(path).description.get("model_flags", {}).get("model_type")
    if model_type != kind:
        raise ValueError(
            f"--pretrained_{kind} {path} is a checkpoint of the model {model_type}: give one that "
            f"was trained with --model_type {kind}"
        )
    weights = [w for w in model.weights_to_save() if _branch_of(w.name) in (branch, "both")]
    checkpoint.restore(path, weights, world)


def _branch_of(name: str) -> str:
    """Returns the branch that has the weight of this name."""
    if name == "dense/output.bias":
        return "both"
    return "gmf" if name.startswith(("sparse/mf_", "dense/output.gmf_")) else "mlp"
