"""Training step time of synthetic models.

Examples:
python main.py --model tiny --optimizer adagrad --batch_size 65536
horovodrun -np 4 python main.py --model tiny --optimizer adagrad --batch_size 65536
python main.py --model jumbo --plan_only --plan_world_size 128 --optimizer adagrad

A model that does not fit is refused before anything is allocated.
"""

import sys
import time
from pathlib import Path

import tensorflow as tf
from absl import app, flags, logging
from distributed_embeddings import planner
from distributed_embeddings.collectives import World, current
from distributed_embeddings.keras import keras
from distributed_embeddings.planner.plan_text import format_bytes
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
STATE_BYTES = {"sgd": 0, "adagrad": 4, "adam": 8}  # per element of a table
# Of the available memory; the rest is for activations, exchange buffers and TensorFlow.
USABLE = 0.85


def define_flags() -> None:
    """Defines the flags of the command line."""
    size = {"lower_bound": 1}
    flags.DEFINE_enum("model", "tiny", list(MODELS), "Model.")
    flags.DEFINE_enum("optimizer", "sgd", list(OPTIMIZERS), "Optimizer.")
    flags.DEFINE_integer("batch_size", 4, "Samples per step of all ranks.", **size)
    flags.DEFINE_integer("num_data_batches", 1, "Generated batches.", **size)
    flags.DEFINE_integer("num_steps", 100, "Measured steps.", **size)
    flags.DEFINE_float("alpha", 1.05, "Exponent of the power law of ids; 0: uniform.")
    flags.DEFINE_bool("dp_input", False, "Data-parallel instead of model-parallel input.")
    flags.DEFINE_integer("column_slice_threshold", None, "Most elements of a column slice.")
    rows = "Elements from which a table is row-sliced; needs --dp_input."
    flags.DEFINE_integer("row_slice_threshold", None, rows)
    copies = "Elements up to which a table is replicated; needs --dp_input."
    flags.DEFINE_integer("data_parallel_threshold", None, copies)
    flags.DEFINE_bool("plan_only", False, "Print the plan and exit.")
    flags.DEFINE_integer("plan_world_size", 1, "Ranks of --plan_only.", **size)


def thresholds() -> dict[str, int | None]:
    """Returns the limits of the placement; model-parallel input slices columns alone."""
    names = ["column_slice_threshold"]
    if FLAGS.dp_input:
        names += ["row_slice_threshold", "data_parallel_threshold"]
    return {name: FLAGS[name].value for name in names}


def make_plan(sizes: ModelSizes, world_size: int) -> planner.Plan:
    """Returns the plan of the flags, with its costs."""
    tables = [planner.Table(f"t{t}", rows, dim) for t, (rows, dim) in enumerate(sizes.tables)]
    workload = planner.Workload(
        tuple(tables),
        tuple(planner.Feature(*feature) for feature in sizes.features),
        world_size,
        global_batch_size=FLAGS.batch_size,
        state_bytes_per_element=STATE_BYTES[FLAGS.optimizer],
        # Adam moves all rows in each step.
        scratch_bytes_per_element=8 if FLAGS.optimizer == "adam" else 0,
        dp_input=FLAGS.dp_input,
    )
    return planner.plan(workload, planner.Limits(**thresholds()), "memory_balanced")


def check_memory(plan: planner.Plan, world: World) -> None:
    """Exits if the ranks of a machine do not fit into its available memory."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    available = USABLE * 1024 * int(kib) / world.local_size
    largest = max(cost.memory_bytes for cost in plan.costs)
    if any(world.gather_objects(largest > available, "memory")):
        sys.exit(
            f"the model does not fit: the fullest of {world.size} ranks needs "
            f"{format_bytes(largest)} for tables and optimizer state, {format_bytes(available)} "
            "per rank are available here. Possible solutions: 1) start more ranks, on other "
            "machines; 2) cut tables with a lower --column_slice_threshold; 3) choose a smaller "
            "--model"
        )


def train(model: SyntheticModel, batches: SyntheticBatches, optimizer, world: World) -> float:
    """Trains; returns seconds per step after the warm-up."""
    bce = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = bce(labels, model(inputs))
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
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
    if FLAGS.plan_only:
        print(planner.report(make_plan(sizes, FLAGS.plan_world_size)))
        return
    world = current()
    if FLAGS.batch_size % world.size:
        sys.exit(
            f"Batch size ({FLAGS.batch_size}) is not divisible by world size ({world.size}): "
            "choose a multiple"
        )
    check_memory(make_plan(sizes, world.size), world)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[world.local_rank % len(gpus)], "GPU")
        tf.config.experimental.set_memory_growth(gpus[world.local_rank % len(gpus)], True)
    model = SyntheticModel(sizes, dp_input=FLAGS.dp_input, **thresholds())
    batches = SyntheticBatches(
        sizes,
        FLAGS.batch_size,
        None if FLAGS.dp_input else model.embeddings.strategy.input_ids_list[world.rank],
        world,
        num_batches=FLAGS.num_data_batches,
        alpha=FLAGS.alpha,
    )
    step_s = train(model, batches, OPTIMIZERS[FLAGS.optimizer](), world)
    if world.is_chief:
        print(f"Iteration time: {1000 * step_s:.3f} ms")


if __name__ == "__main__":
    define_flags()
    app.run(main)
