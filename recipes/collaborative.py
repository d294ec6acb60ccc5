"""What the collaborative recipe composes: interactions and drawn negatives, NeuMF, GMF or MLP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import Config
from dataloading.interactions.candidate_rules import series_key
from dataloading.spec import feature_spec as fs
from recipes.from_flags import (
    evaluation_mapping,
    model_arguments,
    plan_of_tables,
    row_facts,
    split_note,
)
from recipes.recipe import METRICS, Goal, Recipe
from runtime import checkpoint
from runtime.cluster.distributed import World, run_on_all_ranks
from runtime.logs.run_logger import LogNames

if TYPE_CHECKING:
    from nn.train.trainer import Trainer

# Of negatives that are drawn for an evaluation: the same ones in every run, so that models can be
# compared.
EVALUATION_SEED = 0

# What a checkpoint must remember to build the model again.
SHAPE_FLAGS = ("model_type", "factors", "layers")


@dataclasses.dataclass(kw_only=True)
class CollaborativeRecipe(Recipe):
    """Recipe whose batches are drawn in the training step.

    Attributes:
        make_batch: makes a batch with drawn negatives of an element of `train`, in the graph; None
            without training samples.
        num_parts: parts of a batch whose gradients are accumulated.
        pretrained: sets the weights from trained branches and returns their description; None if
            no branches are given.
    """

    make_batch: Callable[[Any], Any] | None
    num_parts: int
    pretrained: Callable[[], str] | None

    def make_trainer(self, loss_scale: float | str, world: World) -> Trainer:
        from nn.train.accumulation import AccumulatingTrainer

        return AccumulatingTrainer(
            *(self.model, self.loss, self.groups, loss_scale, world),
            num_parts=self.num_parts,
            make_batch=self.make_batch,
        )

    def initialize(self, resumes: bool) -> str:
        if self.pretrained is None:
            return ""
        return "not read: the training resumes" if resumes else self.pretrained()


def build(config: Config, spec: fs.FeatureSpec, world, device) -> Recipe:
    """The model, its rows, loss, optimizers and evaluator."""
    from nn.ncf.evaluator import RankingEvaluator
    from nn.ncf.loss import ncf_loss
    from nn.ncf.model import NCFModel

    own = config.collaborative
    check_local_rank(own.local_rank, world)
    config = config.replace(amp=device.policy != "float32")  # where it was left to the device
    shape = model_config(config, spec)
    plan = make_plan(config, shape, world.size, device.memory)
    model = NCFModel(
        shape,
        plan=plan,
        **model_arguments(config, device, world),
    )
    train, valid = open_rows(config, spec, world)
    evaluator, names = None, [f"{metric}@{own.topk}" for metric in ("hr", "ndcg")]
    if valid and config.run.mode != "predict":
        evaluator = RankingEvaluator(model, valid, own.topk, world)
    return CollaborativeRecipe(
        model=model,
        train=train,
        valid=valid,
        loss=ncf_loss,
        groups=model.optimizer_groups(config.optimizer),
        evaluator=evaluator,
        model_flags={name: getattr(own, name) for name in SHAPE_FLAGS},
        facts={
            "model": own.model_type,
            "users": shape.num_users,
            "items": shape.num_items,
            **row_facts(train, valid),
            "parameters": model.num_parameters,
        },
        notes=(
            plan.memory_note,
            split_note(config.run.mode, spec, valid, "prepare the data with --validation"),
        ),
        log_names=log_names(names[0]),
        metrics=(*METRICS, *names, f"best_{names[0]}"),
        goal=Goal(names[0], own.threshold, "threshold", reports_time_to_best=True),
        make_batch=train.rows if train else None,
        num_parts=own.grads_accumulated,
        pretrained=pretrained(config, model, world),
    )


def check_local_rank(given: int | None, world) -> None:
    """Raises ValueError where a launcher's word for this process is not ours."""
    if given not in (None, world.local_rank):
        raise ValueError(
            f"--local_rank {given}, but this is process {world.local_rank} of "
            f"{world.local_size} on its machine: processes are started by horovodrun, mpirun or "
            "srun, which need no --local_rank, and not by torch.distributed.launch"
        )


def log_names(goal: str) -> LogNames:
    """The original's names of what this project logs."""
    return LogNames(
        step={"log_loss": "validation_loss"},
        epoch={
            "loss": "train_loss",
            "log_loss": "validation_loss",
            "epoch_s": "train_epoch_time",
            "evaluation_s": "validation_epoch_time",
        },
        summary={
            "log_loss": "validation_loss",
            f"best_{goal}": "best_accuracy",
            "time_to_best_s": "time_to_best_model",
            "time_to_threshold_s": "time_to_target",
        },
        epoch_lines=True,
        speeds=True,
    )


def pretrained(config: Config, model, world):
    """What sets the weights of a NeuMF from its trained branches; None where it starts anew."""
    own = config.collaborative
    if not own.pretrained_gmf or config.run.mode != "train":
        return None

    def find() -> list[Path]:
        given = {"gmf": own.pretrained_gmf, "mlp": own.pretrained_mlp}
        return [
            checkpoint.resolve(checkpoint.best_of(p), f"--pretrained_{kind}")
            for kind, p in given.items()
        ]

    def start() -> str:
        from nn.ncf.pretrained import start_from

        gmf, mlp = run_on_all_ranks(world, find)
        start_from(model, gmf, mlp, own.alpha, world)
        return f"weights of {gmf} times {own.alpha:g} and {mlp} times {1 - own.alpha:g}"

    return start


def model_config(config: Config, spec: fs.FeatureSpec):
    """The model's sizes, `nn.ncf.config.NCFConfig`, from the flags and the data set."""
    from nn.ncf.config import NCFConfig

    own = config.collaborative
    (users,), (items,) = (
        spec.cardinalities(channel) for channel in (fs.USER_CHANNEL, fs.ITEM_CHANNEL)
    )
    return NCFConfig(
        model_type=own.model_type,
        num_users=users,
        num_items=items,
        factors=own.factors,
        layers=own.layers,
        dropout=own.dropout,
    )


def report_plan(config: Config, spec: fs.FeatureSpec) -> str:
    """Who would hold which slice of which table on `--plan_world_size` processes."""
    from nn.embedding.planner import report
    from nn.embedding_model import dense_bytes
    from nn.ncf.model import NCFModel

    shape = model_config(config, spec)
    made = make_plan(config, shape, config.distribution.plan_world_size)
    one_row_each = dataclasses.replace(shape, num_users=1, num_items=1)
    return report(
        made,
        ranks_per_machine=config.distribution.plan_ranks_per_machine,
        dense_bytes=dense_bytes(lambda: NCFModel(one_row_each)),
    )


def make_plan(config: Config, shape, world_size: int, memory=None):
    """The plan (`nn.embedding.planner.plan`) that training obeys and `--plan_only` prints.

    Args:
      memory: `runtime.hardware.memory.Memory` of a rank; None: not known.
    """
    from nn.ncf.config import embedding_tables, feature_table_map, hotnesses

    features = feature_table_map(shape)
    return plan_of_tables(
        config,
        embedding_tables(shape),
        world_size,
        hotness=hotnesses(shape),
        wide_ids=False,  # dataloading/interactions/stored.py allows ids of int32 only
        # A table is asked for each of its rows once.
        most_samples=world_size * max(shape.num_users, shape.num_items),
        input_table_map=features,
        combined=[False] * len(features),
        memory=memory,
    )


def open_rows(config: Config, spec: fs.FeatureSpec, world):
    """(training rows, held-out rows), or None each."""
    from dataloading.interactions.candidates import SeriesDataset
    from dataloading.interactions.sampled import SampledInteractions

    own, run = config.collaborative, config.run
    share = {"rank": world.rank, "world_size": world.size}
    train = None
    if run.mode == "train":
        train = SampledInteractions(
            spec,
            fs.TRAIN,
            run.batch_size * own.grads_accumulated,
            negative_samples=own.negative_samples,
            negative_exponent=own.negative_exponent,
            seed=run.seed,
            **share,
        )
        if not run.evals_per_epoch:
            return train, None
    mapping = evaluation_mapping(config.data.eval_mapping, run.mode, spec)
    valid = SeriesDataset(
        spec,
        mapping,
        run.valid_batch_size,
        valid_negative=negatives_of_series(config, spec, mapping),
        seed=EVALUATION_SEED,
        with_labels=run.mode != "predict",
        **share,
    )
    if run.mode != "predict" and own.topk >= valid.series_length:
        raise ValueError(
            f"--topk {own.topk} of series of {valid.series_length} items is a hit for any model: "
            f"give at most {valid.series_length - 1}, or more negatives"
        )
    return train, valid


def negatives_of_series(config: Config, spec: fs.FeatureSpec, mapping: str) -> int | None:
    """How many negatives to use of those that are stored, None: all; or how many to draw."""
    asked = config.collaborative.valid_negative
    stored = spec.metadata.get(series_key(mapping))
    fewer = isinstance(stored, int) and stored - 1 < asked
    return None if fewer and "valid_negative" not in config.explicit else asked
