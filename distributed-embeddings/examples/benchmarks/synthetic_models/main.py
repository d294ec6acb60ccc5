"""Training step time of synthetic models.

Examples:
python main.py --model tiny --optimizer adagrad --batch_size 65536
horovodrun -np 4 python main.py --model tiny --optimizer adagrad --batch_size 65536
python main.py --model jumbo --plan_only --plan_world_size 128 --optimizer adagrad

A model that does not fit is refused before anything is allocated.
"""

import sys
import time

import memory
import tensorflow as tf
from absl import app, flags, logging
from distributed_embeddings import planner
from distributed_embeddings.collectives import World, current
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from model_sizes import MODELS, ModelSizes
from synthetic_models import SyntheticBatches, SyntheticModel

FLAGS = flags.FLAGS
NUM_WARMUP_STEPS = 5
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.legacy.SGD(0.03),
    "adagrad": keras.optimizers.legacy.Adagrad,
    "adam": keras.optimizers.legacy.Adam,
}


def define_flags() -> None:
    """Defines the flags of the command line."""
    size = {"lower_bound": 1}
    flags.DEFINE_enum("model", "tiny", list(MODELS), "Model.")
    flags.DEFINE_enum("optimizer", "sgd", list(OPTIMIZERS), "Optimizer.")
    flags.DEFINE_integer("batch_size", 4, "Samples per step of all ranks.", **size)
    flags.DEFINE_integer("num_data_batches", 1, "Generated batches.", **size)
    flags.DEFINE_integer("num_steps", 100, "Measured steps.", **size)
    flags.DEFINE_float("alpha", 1.05, "Exponent of the power law of ids; 0: uniform.")
    ratio = "Mean ids of multi-hot features, as a fraction of the maximum; below 1: ragged."
    flags.DEFINE_float("mean_dynamic_hotness_ratio", 1.0, ratio, lower_bound=0, upper_bound=1)
    flags.DEFINE_bool("dp_input", False, "Data-parallel instead of model-parallel input.")
    flags.DEFINE_integer("column_slice_threshold", None, "Most elements of a column slice.")
    rows = "Elements from which a table is row-sliced; needs --dp_input."
    flags.DEFINE_integer("row_slice_threshold", None, rows)
    copies = "Elements up to which a table is replicated; needs --dp_input."
    flags.DEFINE_integer("data_parallel_threshold", None, copies)
    flags.DEFINE_bool("use_model_fit", False, "Train with model.fit.")
    flags.DEFINE_bool("amp", False, "Compute in mixed precision.")
    flags.DEFINE_enum(
        "embedding_api", "tfde", ["tfde", "native"], "DistributedEmbedding, or Keras layers."
    )
    device = "Device of the tables of --embedding_api native; the CPU where there is no GPU."
    flags.DEFINE_string("embedding_device", "/GPU:0", device)
    flags.DEFINE_float("memory_gb", None, "Memory of a rank in GB; by default the host's.")
    flags.DEFINE_bool("plan_only", False, "Print the plan and exit.")
    flags.DEFINE_integer("plan_world_size", None, "Ranks of --plan_only.", **size)


def check_flags(world: World) -> None:
    """Exits on flags that contradict each other, before anything is allocated."""
    native = FLAGS.embedding_api == "native"
    error = None
    if FLAGS.batch_size % world.size:
        error = (
            f"Batch size ({FLAGS.batch_size}) is not divisible by world size ({world.size}): "
            "choose a multiple"
        )
    elif native and (not FLAGS.dp_input or FLAGS.column_slice_threshold):
        error = "--embedding_api native needs --dp_input and no --column_slice_threshold"
    elif native and world.size > 1:
        error = "--embedding_api native runs on one rank: use --embedding_api tfde"
    elif not native and FLAGS.embedding_device != "/GPU:0":
        error = (
            "--embedding_device is for --embedding_api native: a DistributedEmbedding is on the "
            "rank's GPU, or on the CPU of a machine without GPUs"
        )
    elif FLAGS.use_model_fit and FLAGS.num_steps < 2 * FLAGS.num_data_batches:
        error = "--use_model_fit needs --num_steps of at least twice --num_data_batches"
    if error:
        sys.exit(error)


def make_plan(sizes: ModelSizes, world_size: int) -> planner.Plan:
    """Returns the plan of the flags."""
    limits = planner.Limits(
        FLAGS.column_slice_threshold, FLAGS.row_slice_threshold, FLAGS.data_parallel_threshold
    )
    return memory.make_plan(
        sizes,
        world_size,
        limits,
        optimizer=FLAGS.optimizer,
        batch_size=FLAGS.batch_size,
        dp_input=FLAGS.dp_input,
    )


def build(sizes: ModelSizes, world: World) -> tuple[SyntheticModel, SyntheticBatches]:
    """Creates the model and its batches."""
    options = {}
    if FLAGS.embedding_api == "native":
        options["embedding_device"] = (
            FLAGS.embedding_device if tf.config.get_visible_devices("GPU") else "/CPU:0"
        )
    else:
        options["dp_input"] = FLAGS.dp_input
        options["column_slice_threshold"] = FLAGS.column_slice_threshold
        if FLAGS.dp_input:
            options["row_slice_threshold"] = FLAGS.row_slice_threshold
            options["data_parallel_threshold"] = FLAGS.data_parallel_threshold
    model = SyntheticModel(sizes, FLAGS.embedding_api, **options)
    batches = SyntheticBatches(
        sizes,
        FLAGS.batch_size,
        None if FLAGS.dp_input else model.embeddings.strategy.input_ids_list[world.rank],
        rank=world.rank,
        world_size=world.size,
        num_batches=FLAGS.num_data_batches,
        alpha=FLAGS.alpha,
        hotness_ratio=FLAGS.mean_dynamic_hotness_ratio,
    )
    return model, batches


def fit(model: SyntheticModel, batches: SyntheticBatches, optimizer, world: World) -> float:
    """Trains with model.fit; returns seconds per step, without those of the first epoch."""
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=dmp.DistributedOptimizer(optimizer), loss=bce)
    options = {"verbose": 2 if world.is_chief else 0, "shuffle": False}
    callbacks = [dmp.BroadcastGlobalVariablesCallback(0)]
    history = model.fit(batches, epochs=1, callbacks=callbacks, **options)
    if world.is_chief:
        print(f"Initial loss: {history.history['loss'][0]:.3f}")
    epochs = FLAGS.num_steps // FLAGS.num_data_batches
    start = time.perf_counter()
    model.fit(batches, initial_epoch=1, epochs=epochs, **options)
    return (time.perf_counter() - start) / ((epochs - 1) * FLAGS.num_data_batches)


def train(model: SyntheticModel, batches: SyntheticBatches, optimizer, world: World) -> float:
    """Trains with a loop of its own; returns seconds per step after the warm-up."""
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    if FLAGS.amp:
        optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)

    @tf.function
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = bce(labels, model(inputs))
            objective = optimizer.get_scaled_loss(loss) if FLAGS.amp else loss
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(objective, model.trainable_variables)
        if FLAGS.amp:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def print_loss(label: str, loss) -> None:
        (mean,) = world.all_reduce([loss], "mean", "mean_loss")
        if world.is_chief:
            print(f"{label}: {mean:.3f}", flush=True)

    inputs, labels = batches[-1]
    model(inputs)
    dmp.broadcast_variables(model.variables, root_rank=0)
    for _ in range(NUM_WARMUP_STEPS):
        loss = train_step(inputs, labels)
    print_loss("Initial loss", loss)
    start = time.perf_counter()
    for step in range(FLAGS.num_steps):
        loss = train_step(*batches[step % FLAGS.num_data_batches])
        if step % 50 == 0:
            float(loss)  # waits for the step
            if world.is_chief:
                print(f"Benchmark step [{step}/{FLAGS.num_steps}]", flush=True)
    print_loss("loss", loss)
    return (time.perf_counter() - start) / FLAGS.num_steps


def main(_) -> None:
    """Runs the benchmark of the flags."""
    logging.set_verbosity(logging.INFO)
    sizes = MODELS[FLAGS.model]
    dense_bytes = 4 * sizes.num_dense_weights
    if FLAGS.plan_only:
        plan = make_plan(sizes, FLAGS.plan_world_size or 1)
        print(planner.report(plan, dense_bytes=dense_bytes))
        return
    world = current()
    check_flags(world)
    memory_bytes = FLAGS.memory_gb and 1e9 * FLAGS.memory_gb
    error = memory.why_too_large(make_plan(sizes, world.size), world, memory_bytes)
    if any(world.gather_objects(error, "memory")):
        sys.exit(error or "the model does not fit on another rank")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[world.local_rank % len(gpus)], "GPU")
        tf.config.experimental.set_memory_growth(gpus[world.local_rank % len(gpus)], True)
    if FLAGS.amp:
        keras.mixed_precision.set_global_policy("mixed_float16")
    model, batches = build(sizes, world)
    run = fit if FLAGS.use_model_fit else train
    step_s = run(model, batches, OPTIMIZERS[FLAGS.optimizer](), world)
    if world.is_chief:
        print(f"Iteration time: {1000 * step_s:.3f} ms")


if __name__ == "__main__":
    define_flags()
    app.run(main)
