"""Recipe of NCF: interactions and drawn negatives, a NeuMF, GMF or MLP model over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.interactions.candidate_rules import list_length_key
from dataloading.interactions.stored import count_of_items
from dataloading.spec import feature_spec as fs
from recipes import from_flags
from recipes.collaborative.shape import build_model
from recipes.recipe import METRICS, Goal, Recipe
from runtime import checkpoint
from runtime.cluster.distributed import run_on_all_ranks
from runtime.hardware.device import Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dataloading.interactions.candidates import CandidateDataset
    from dataloading.interactions.sampled import SampledInteractions

# Seed of negatives that are drawn for an evaluation: equal in all runs, so that models can be
# compared.
EVALUATION_SEED = 0


def build(config: Config, spec: fs.FeatureSpec | None, world: World, device: Device) -> Recipe:
    """Composes the model, its data, loss, optimizers and evaluator."""
    from dataloading.interactions.drawn_pairs import DrawnPairs
    from nn.ncf.candidate_evaluator import HitRateEvaluator
    from nn.ncf.model import ncf_loss

    flags = config.family_flags
    _check_local_rank(flags.local_rank, world)
    config = config.with_values({"amp": device.policy != "float32"})  # if left to the device
    batch_sizes = flags.batch_sizes if config.run.mode == "inference" else ()
    if batch_sizes:
        spec = _drawn_spec(config, world)
    assert spec is not None
    model = (config.definition.build_model or build_model)(config, spec, world, device)
    shape = model.config
    reads_samples = not batch_sizes and config.run.mode != "recommend"
    train, valid = open_data(config, spec, world) if reads_samples else (None, None)
    popularity = _popularity(config, spec)
    recommendation, rankings = from_flags.rankings(
        "recipes.collaborative.rankings", config, spec, model, world, popularity=popularity
    )
    evaluator, names = None, [f"{metric}@{flags.topk}" for metric in ("hr", "ndcg")]
    if valid and config.run.mode != "predict":
        evaluator = HitRateEvaluator(model, valid, flags.topk, world, popularity)
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=ncf_loss,
        optimizers=model.create_optimizers(config.optimizer),
        evaluator=evaluator,
        facts={
            "users": shape.num_users,
            "items": shape.num_items,
            **from_flags.data_facts(train, valid),
            **_training_rows(train),
            "parameters": model.num_parameters,
        },
        notes=(
            model.embedding.plan.memory_note,
            from_flags.note_test_split(
                config.run.mode, spec, valid, "prepare the data with --validation"
            ),
            *(recommendation.notes if recommendation else ()),
        ),
        metrics=(*METRICS, *names, *(n for ranking in rankings for n in ranking.names)),
        goal=Goal(names[0], flags.threshold, "threshold", names[0], reports_time_to_best=True),
        make_batch=train.samples if train else None,
        num_parts=flags.grads_accumulated,
        export=_export_weights if flags.checkpoint_dir and flags.model_type == "neumf" else None,
        sweep=[
            DrawnPairs(shape.num_users, shape.num_items, size, config.run.seed or 0)
            for size in batch_sizes
        ],
        pretrained=_pretrained(config, model, world),
        kept=from_flags.kept_columns(config, spec, valid, world),
        recommendation=recommendation,
        rankings=rankings,
    )


def _training_rows(train: Any) -> dict[str, str]:
    """Returns the fact `training_rows` of interactions, which get drawn negatives."""
    if train is None or not train.negative_samples:
        return {}
    count, negatives = train.num_interactions, train.negative_samples
    return {"training_rows": f"{count:,} (with {negatives} negatives each)"}


def _popularity(config: Config, spec: fs.FeatureSpec) -> NDArray[np.int64] | None:
    """Returns the number of interactions of each item in train, [items], to compare `--mode eval`
    with; None in other modes, and without this split unless `--full_ranking` needs it."""
    needs_train = fs.TRAIN in spec.source_spec or config.recommendation.full_ranking
    if config.run.mode != "eval" or not needs_train:
        return None
    return count_of_items(spec)


def _export_weights(folder: Path) -> str:
    """Writes the best checkpoint, or the newest one, as the file of NVIDIA's recipe."""
    path = checkpoint.resolve(checkpoint.best_of(folder))
    file = folder / checkpoint.NEUMF_FILE
    checkpoint.export_neumf(path, file)
    return f"weights of {path.resolve().name} as a state_dict of PyTorch: {file}"


def _check_local_rank(local_rank: int | None, world: World) -> None:
    """Raises ValueError if `--local_rank` is not the local rank of this process."""
    if local_rank not in (None, world.local_rank):
        raise ValueError(
            f"--local_rank {local_rank}, but this is process {world.local_rank} of "
            f"{world.local_size} on its machine: processes are started by horovodrun, mpirun or "
            "srun, which need no --local_rank, and not by torch.distributed.launch"
        )


def _pretrained(config: Config, model: Any, world: World) -> Callable[[], str] | None:
    """Returns `Recipe.pretrained`, which sets the weights of a NeuMF from its trained branches."""
    flags = config.family_flags
    branches = {"gmf": flags.pretrained_gmf, "mlp": flags.pretrained_mlp}
    if not all(branches.values()) or config.run.mode != "train":
        return None

    def find() -> list[Path]:
        return [
            checkpoint.resolve(checkpoint.best_of(path), f"--pretrained_{kind}")
            for kind, path in branches.items()
            if path is not None
        ]

    def start() -> str:
        from recipes.collaborative.pretrained import start_from

        gmf, mlp = run_on_all_ranks(world, find)
        start_from(model, gmf, mlp, flags.alpha, world)
        return f"weights of {gmf} times {flags.alpha:g} and {mlp} times {1 - flags.alpha:g}"

    return start


def open_data(
    config: Config, spec: fs.FeatureSpec, world: World
) -> tuple[SampledInteractions | None, CandidateDataset | None]:
    """Opens the interactions to train on and the candidate lists to evaluate."""
    from dataloading.interactions.candidates import CandidateDataset
    from dataloading.interactions.sampled import SampledInteractions

    flags, run, train = config.family_flags, config.run, None
    if run.mode == "train":
        assert run.seed is not None
        train = SampledInteractions(
            spec,
            fs.TRAIN,
            run.batch_size * flags.grads_accumulated,
            negative_samples=flags.negative_samples,
            negative_exponent=flags.negative_exponent,
            seed=run.seed,
            rank=world.rank,
            world_size=world.size,
        )
        if not config.evaluation.evals_per_epoch:
            return train, None
    split = from_flags.evaluation_split(config.data.eval_mapping, run.mode, spec)
    assert run.valid_batch_size is not None
    valid = CandidateDataset(
        spec,
        split,
        run.valid_batch_size,
        valid_negative=num_negatives(config, spec, split),
        seed=EVALUATION_SEED,
        with_labels=run.mode != "predict",
        rank=world.rank,
        world_size=world.size,
    )
    if run.mode != "predict" and flags.topk >= valid.list_length:
        raise ValueError(
            f"--topk {flags.topk} of candidate lists of {valid.list_length} items is a hit for any "
            f"model: give at most {valid.list_length - 1}, or more negatives"
        )
    return train, valid


def num_negatives(config: Config, spec: fs.FeatureSpec, split: str) -> int | None:
    """Returns the negatives per candidate list, stored or drawn; None: all stored ones."""
    count = config.family_flags.valid_negative
    length = spec.metadata.get(list_length_key(split))
    stores_fewer = isinstance(length, int) and length - 1 < count
    return None if stores_fewer and "valid_negative" not in config.explicit else count


def _drawn_spec(config: Config, world: World) -> fs.FeatureSpec:
    """Returns the feature spec of users and items that are drawn for `--batch_sizes`."""
    if world.size > 1:
        raise ValueError(
            f"--batch_sizes measures one process, got {world.size}: start it without horovodrun"
        )
    flags = config.family_flags
    counts = {"user": "n_users", "item": "n_items"}
    cardinalities = {"user": flags.n_users, "item": flags.n_items}
    if path := config.checkpoint.restore_checkpoint_path:
        for name, entry in checkpoint.describe(
            checkpoint.resolve(checkpoint.best_of(path))
        ).weights.items():
            kind = name.rpartition("_")[2]
            if name.startswith("sparse/") and counts.get(kind, name) not in config.explicit:
                cardinalities[kind] = entry.shape[0]
    content = {
        "feature_spec": {
            kind: {"dtype": "int32", "cardinality": cardinalities[kind]} for kind in counts
        },
        "source_spec": {},
        "channel_spec": {fs.USER_CHANNEL: ["user"], fs.ITEM_CHANNEL: ["item"]},
    }
    return fs.FeatureSpec.from_dict(content, ".", origin="drawn users and items")
