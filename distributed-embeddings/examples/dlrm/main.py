"""DLRM on preprocessed Criteo clicks, or on generated ones.

    python main.py
    horovodrun -np 4 python main.py --dataset_path /data/criteo_binary

`--dataset_path` is a folder of the binary format of NVIDIA's recipe: model_size.json, and
label.bin, numerical.bin and cat_0.bin to cat_25.bin in `train` and `test`.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf
from absl import app, flags
from click_data import ClickData, generate, read_split, read_table_sizes
from distributed_embeddings.collectives import World, current
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from model import DotDLRM

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the command line."""
    flags.DEFINE_string("dataset_path", None, "Folder of the data; by default it is generated.")
    flags.DEFINE_float("learning_rate", 24, "Learning rate of SGD after the warm-up.")
    flags.DEFINE_integer("warmup_steps", 8000, "Steps of rising learning rate.")
    flags.DEFINE_integer("decay_start_step", 48000, "First step of falling learning rate.")
    flags.DEFINE_integer("decay_steps", 24000, "Steps of falling learning rate.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 65536, "Samples per step of all ranks.", lower_bound=1)
    flags.DEFINE_integer("num_batches", 340, "Generated training batches.", lower_bound=1)
    flags.DEFINE_integer("num_numerical_features", 13, "Numerical features.", lower_bound=1)
    flags.DEFINE_integer("num_categorical_features", None, "Checked: the number of tables.")
    flags.DEFINE_list("table_sizes", ["1000"] * 26, "Rows of each table of generated data.")
    flags.DEFINE_integer("embedding_dim", 128, "Columns of the tables.", lower_bound=1)
    flags.DEFINE_list("bottom_mlp_dims", ["512", "256", "128"], "Widths of the bottom MLP.")
    flags.DEFINE_list("top_mlp_dims", ["1024", "1024", "512", "256", "1"], "Widths of the top MLP.")
    flags.DEFINE_bool("dp_input", False, "Data-parallel instead of model-parallel input.")
    flags.DEFINE_bool("test_combiner", False, "Tables with a combiner, and ids [batch, 1].")
    flags.DEFINE_string("dist_strategy", "memory_balanced", "Placement strategy.")
    flags.DEFINE_integer("print_freq", 1000, "Steps between printed losses.", lower_bound=1)


class WarmupAndDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then constant, then quadratic decay to zero."""

    def __init__(self, base: float, warmup_steps: int, decay_start: int, decay_steps: int):
        self.base, self.warmup_steps = base, warmup_steps
        self.decay_start, self.decay_steps = decay_start, decay_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        warmup = tf.minimum(1.0, (step + 1) / max(1, self.warmup_steps))
        left = 1 - (step - self.decay_start) / self.decay_steps
        return self.base * warmup * tf.clip_by_value(left, 0.0, 1.0) ** 2

    def get_config(self):
        """Returns the arguments."""
        names = ("base", "warmup_steps", "decay_start", "decay_steps")
        return {name: getattr(self, name) for name in names}


def local_batches(data: Iterable[ClickData], world: World, features) -> Iterator[tuple]:
    """Yields ((numerical, ids), labels) of this rank's part of each batch.

    Args:
        data: Batches of the samples of all ranks.
        world: The ranks.
        features: Features whose ids are of the samples of all ranks (model-parallel input); None:
            all features, of this rank's samples.
    """
    for batch in data:
        local_size = len(batch.labels) // world.size
        local = slice(world.rank * local_size, (world.rank + 1) * local_size)
        if features is None:
            ids = [feature[local] for feature in batch.categorical]
        else:
            ids = [batch.categorical[f] for f in features]
        ids = [tf.constant(feature, tf.int64) for feature in ids]
        if FLAGS.test_combiner:
            ids = [feature[:, tf.newaxis] for feature in ids]
        labels = tf.constant(batch.labels[local][:, None], tf.float32)
        yield (tf.constant(batch.numerical[local], tf.float32), ids), labels


def evaluate(model: DotDLRM, test: Iterator[tuple], world: World) -> tuple[float, float]:
    """Returns the AUC and the mean loss of the test samples of all ranks."""
    auc, mean_loss = keras.metrics.AUC(8000, from_logits=True), keras.metrics.Mean()
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    for inputs, labels in test:
        labels = world.all_gather(labels, "labels")
        logits = world.all_gather(model(inputs), "logits")
        auc.update_state(labels, logits)
        mean_loss.update_state(bce(labels, logits))
    return float(auc.result()), float(mean_loss.result())


def read_data() -> tuple[list[int], Iterable[ClickData], Iterable[ClickData]]:
    """Returns the rows of each table, and the batches of training and test."""
    batch_size, num_numerical = FLAGS.batch_size, FLAGS.num_numerical_features
    if not FLAGS.dataset_path:
        table_sizes = [int(rows) for rows in FLAGS.table_sizes]
        nums_batches = FLAGS.num_batches, math.ceil(FLAGS.num_batches / 10)
        splits = [
            generate(num_batches, batch_size, table_sizes, num_numerical, seed)
            for seed, num_batches in enumerate(nums_batches)
        ]
        return table_sizes, *splits
    folder = Path(FLAGS.dataset_path)
    table_sizes, splits = read_table_sizes(folder), []
    for name in ("train", "test"):
        data = read_split(folder / name, table_sizes, num_numerical)
        if len(data.labels) < batch_size:
            raise app.UsageError(
                f"--batch_size {batch_size} is larger than the {len(data.labels)} samples of "
                f"{folder / name}: choose a smaller one"
            )
        splits.append(data.batches(batch_size))
    return table_sizes, *splits


def main(_) -> None:
    """Trains one epoch and evaluates."""
    world = current()
    if FLAGS.batch_size % world.size:
        raise app.UsageError(
            f"--batch_size {FLAGS.batch_size} is not divisible by {world.size} ranks"
        )
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[world.local_rank % len(gpus)], "GPU")
    table_sizes, train_data, test_data = read_data()
    if FLAGS.num_categorical_features not in (None, len(table_sizes)):
        raise app.UsageError(
            f"--num_categorical_features {FLAGS.num_categorical_features}: expected the number of "
            f"tables, {len(table_sizes)} (--table_sizes)"
        )
    model = DotDLRM(
        table_sizes,
        FLAGS.embedding_dim,
        [int(width) for width in FLAGS.bottom_mlp_dims],
        [int(width) for width in FLAGS.top_mlp_dims],
        combiner="sum" if FLAGS.test_combiner else None,
        strategy=FLAGS.dist_strategy,
        dp_input=FLAGS.dp_input,
    )
    features = None if FLAGS.dp_input else model.embeddings.strategy.input_ids_list[world.rank]
    schedule = WarmupAndDecay(
        FLAGS.learning_rate, FLAGS.warmup_steps, FLAGS.decay_start_step, FLAGS.decay_steps
    )
    optimizer = keras.optimizers.legacy.SGD(schedule)
    bce = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = bce(labels, model(inputs))
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for step, batch in enumerate(local_batches(train_data, world, features)):
        loss = train_step(*batch)
        if step == 0:
            dmp.broadcast_variables(model.variables, root_rank=0)
        if step % FLAGS.print_freq == 0:
            (mean,) = world.all_reduce([loss], "mean", "mean_loss")
            if world.is_chief:
                print(f"step: {step}, loss: {mean:.5f}", flush=True)
    auc, test_loss = evaluate(model, local_batches(test_data, world, features), world)
    if world.is_chief:
        print(f"Evaluation completed, AUC: {auc:.5f}, test_loss: {test_loss:.5f}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
