"""Random plans, inputs and training steps of which every rank is traced."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import distributed_embeddings as dmp
import numpy as np
import tensorflow as tf
from distributed_embeddings.exchange.ids import read_ids
from distributed_embeddings.keras import keras
from embedding_testing.traced_ranks import (
    TracedRank,
    collectives_of,
    differences,
    set_up,
)

from config.sections.optimizer import OptimizerConfig
from dataloading.pipeline.batch import Batch, Inputs, RaggedIds
from nn.metrics.evaluator import Scorer
from nn.metrics.predictor import predict
from nn.optim.optimizers import create_optimizers
from nn.train.trainer import Trainer

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "lazy_adam")
KERAS_OPTIMIZERS = (
    keras.optimizers.SGD,
    keras.optimizers.Adagrad,
    keras.optimizers.legacy.Adam,
)


@dataclass(frozen=True)
class Feature:
    """Ids of a feature: fixed ones have `hotness`, ragged ones up to as many."""

    table: int
    hotness: int
    ragged: bool
    used: bool = True  # by the loss


@dataclass(frozen=True)
class Case:
    """A plan, inputs and a way to train."""

    num_ranks: int
    tables: tuple  # (rows, columns, combiner, trainable) of each
    features: tuple[Feature, ...]
    layer: dict  # options of `DistributedEmbedding`
    optimizer: str = "sgd"
    api: str = "trainer"  # or "tape", "minimize"
    dtype: str = "float32"
    loss_scale: float = 1.0
    weight_decay: float = 0.0
    accumulate: int = 1
    static_batch: bool = True
    int64: bool = False
    check_ids: bool = True
    seed: int = 0

    @property
    def dp_input(self) -> bool:
        return self.layer.get("dp_input", True)


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)

    def some(*values, p=None):
        return values[int(rng.choice(len(values), p=p))]

    num_ranks = some(2, 3, 4, p=[0.5, 0.4, 0.1])
    tables = tuple(
        (
            int(rng.integers(1, 40)),
            some(1, 2, 4, 8),
            some(None, "sum", "mean"),
            some(*[True] * 4, False),
        )
        for _ in range(some(1, 2, 3))
    )
    raggedness = some(0.0, 0.5, 1.0)
    features = tuple(
        Feature(
            int(rng.integers(len(tables))),
            int(rng.integers(1, 4)),
            bool(rng.random() < raggedness),
            bool(rng.random() < 0.8),
        )
        for _ in range(some(1, 2, 3, 4))
    )
    layer = {"strategy": some("basic", "memory_balanced", "memory_optimized", "cost", "auto")}
    layer["exchange_dtype"] = some(None, "float32", "bfloat16", "float16")
    layer["column_slice_threshold"] = some(None, 1, 30, 10**8)
    if rng.random() < 0.15:  # every rank needs a table that is read, every table a combiner
        layer |= {"dp_input": False, "column_slice_threshold": None}
        tables = tuple(
            (rows, 8, combiner or "sum", trained) for rows, _, combiner, trained in tables
        )
        features += tuple(Feature(t, 1, ragged=False) for t in range(len(tables)))
    else:
        layer["row_slice_threshold"] = some(None, None, 40, 120)
        layer["data_parallel_threshold"] = some(None, None, 20, 80)
    api = some("trainer", "tape", "minimize", p=[0.7, 0.2, 0.1])
    return Case(
        num_ranks,
        tables,
        features,
        layer,
        optimizer=some(*OPTIMIZERS, p=[0.15, 0.15, 0.4, 0.15, 0.15]),
        api=api,
        dtype=some("float32", "mixed_bfloat16", "mixed_float16"),
        loss_scale=some(1.0, 128.0),
        weight_decay=some(0.0, 0.1),
        accumulate=1 if raggedness or api != "trainer" or "dp_input" in layer else some(1, 1, 2),
        static_batch=some(True, False),
        int64=some(True, False),
        check_ids=some(True, False),
        seed=seed,
    )


class Model(tf.Module):
    """Logits are sums over the vectors of the features in use."""

    def __init__(self, case: Case, world):
        super().__init__()
        self.case = case
        self.embedding = dmp.DistributedEmbedding(
            [
                dmp.Embedding(rows, dim, combiner=combiner, name=f"t{t}", trainable=trainable)
                for t, (rows, dim, combiner, trainable) in enumerate(case.tables)
            ],
            input_table_map=[feature.table for feature in case.features],
            world=world,
            check_ids=case.check_ids,
            dtype=case.dtype,
            name="embedding",
            **case.layer,
        )
        self.embedding.build(None)
        self.weight = tf.Variable([1.0], name="weight")

    def __call__(self, inputs):
        logits = tf.zeros_like(inputs.numerical[:, 0])  # those of a model that uses no feature
        for feature, output in zip(self.case.features, self.embedding(ids_of(inputs)), strict=True):
            if feature.used:
                output = tf.cast(output, tf.float32)
                if isinstance(output, tf.RaggedTensor):
                    output = tf.reduce_sum(output, axis=1)
                logits += tf.reduce_sum(tf.reshape(output, [tf.shape(inputs.numerical)[0], -1]), 1)
        return (logits * self.weight)[:, tf.newaxis]


def ids_of(inputs) -> list:
    return [
        tf.RaggedTensor.from_row_splits(*ids, validate=False) if isinstance(ids, RaggedIds) else ids
        for ids in inputs.categorical
    ]


def batch_of(case: Case, rank: int, features) -> Batch:
    """Ids of a rank's samples; with model-parallel input those of all ranks'."""
    rng = np.random.default_rng([case.seed, rank])
    batch = 4 if not case.dp_input else int(rng.integers(1, 5))
    num_rows = batch if case.dp_input else batch * case.num_ranks
    ids = []
    for f in features:
        feature = case.features[f]
        rows = case.tables[feature.table][0]
        dtype = np.int64 if case.int64 else np.int32
        if feature.ragged:
            lengths = rng.integers(0, feature.hotness + 1, num_rows)
            splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            ids.append(RaggedIds(rng.integers(0, rows, splits[-1], dtype), splits))
        else:
            ids.append(rng.integers(0, rows, [num_rows, feature.hotness], dtype))
    numerical = np.zeros([batch, 1], np.float32)
    return Batch(Inputs(numerical, tuple(ids)), numerical, numerical + 1)


def data_set(case: Case, batch: Batch) -> tf.data.Dataset:
    """Batches whose first dimension is known to the compiled function, or is not."""
    if case.static_batch:
        return tf.data.Dataset.from_tensors(batch)
    flat = tf.nest.flatten(batch)
    types = [tf.TensorSpec([None, *values.shape[1:]], values.dtype) for values in flat]
    types = tf.nest.pack_sequence_as(batch, types)
    return tf.data.Dataset.from_generator(lambda: [batch], output_signature=types)


def loss_of(model, batch):
    return tf.reduce_mean(tf.square(model(batch.inputs) - batch.labels)), {}


def trainer_step(case: Case, world, model: Model):
    options = OptimizerConfig(
        optimizer="sgd",
        embedding_optimizer=case.optimizer,
        weight_decay=case.weight_decay,
        warmup_steps=0,
        decay_steps=0,
    )
    tables = list(model.embedding.trainable_variables)
    optimizers = create_optimizers(options, [model.weight], tables, model.embedding.row_means())
    arguments = (model, loss_of, optimizers, case.loss_scale, world)
    trainer = Trainer(*arguments, num_parts=case.accumulate)
    return lambda iterator: trainer.train_step(iterator)


def keras_step(case: Case, model: Model):
    """The step of a program that uses the tape or `minimize`, and broadcasts its variables."""
    variables = [*model.embedding.trainable_variables, model.weight]
    kind = KERAS_OPTIMIZERS[case.seed % len(KERAS_OPTIMIZERS)]
    optimizer = dmp.DistributedOptimizer(kind(0.1))
    if hasattr(optimizer, "build"):
        optimizer.build(variables)

    @tf.function(autograph=False)
    def step(iterator):
        batch = iterator.get_next()
        if case.api == "minimize":
            optimizer.minimize(lambda: loss_of(model, batch)[0], variables)
            return
        with tf.GradientTape() as tape:
            loss, _ = loss_of(model, batch)
        tape = dmp.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        dmp.broadcast_variables([model.weight])

    return step


def ranks_of(case: Case) -> list[TracedRank]:
    """The ranks, which know each other's ids with model-parallel input."""
    ranks = [
        TracedRank(rank, case.num_ranks, rank, case.num_ranks) for rank in range(case.num_ranks)
    ]
    if case.dp_input:
        return ranks
    objects = []
    for rank in ranks:
        features = Model(case, rank).embedding.plan.input_ids_list[rank.rank]
        ids = ids_of(batch_of(case, rank.rank, features).inputs)
        combiners = [case.tables[case.features[f].table][2] for f in features]
        read = [read_ids(*pair, "") for pair in zip(ids, combiners, strict=True)]
        objects.append([[f, *i.signature] for f, i in zip(features, read, strict=True)])
    return [
        TracedRank(rank, case.num_ranks, rank, case.num_ranks, tuple(objects))
        for rank in range(case.num_ranks)
    ]


def compiled_functions(case: Case, world) -> dict[str, Callable]:
    """Calls of a rank's training step, and for some cases of its evaluation or prediction."""
    model = Model(case, world)
    features = range(len(case.features))
    if not case.dp_input:
        features = model.embedding.plan.input_ids_list[world.rank]
    batches = data_set(case, batch_of(case, world.rank, features))
    loader = SimpleNamespace(num_batches=1, dataset=lambda: batches)
    if case.api == "trainer":
        step = trainer_step(case, world, model)
    else:
        step = keras_step(case, model)
    scorer = Scorer(model)
    functions = {"train": lambda: step(iter(batches))}
    if case.seed % 3 == 1:
        functions["evaluate"] = lambda: scorer.score_next(iter(batches))
    if case.seed % 3 == 0:
        functions["predict"] = lambda: list(predict(model, loader, world))
    return functions


def faults(case: Case, monkeypatch, folder) -> list[str]:
    """Returns why the ranks would wait for each other in any of the functions, nothing if not."""
    traced: dict[str, list] = {}
    for world in ranks_of(case):
        set_up(monkeypatch, world)
        for name, function in compiled_functions(case, world).items():
            record = folder / f"{name}.{world.rank}"
            traced.setdefault(name, []).append(collectives_of(function, record))
    return [f"{name}: {text}" for name, ranks in traced.items() for text in differences(ranks)]
