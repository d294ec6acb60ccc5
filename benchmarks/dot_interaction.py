"""The fused dot interaction compared with plain TensorFlow, alone and in a training step.

- the op on [batch, features, dim] compared with the package's `reference.py`, the plain version,
  and with this toolkit's own `dot_tensorflow`, whose gradient is written by hand;
- the layer as the model calls it, on embeddings and bottom MLP output that still lie apart;
- the training step of `dlrm_training` with `--interaction dot_custom` and `dot_tensorflow`.
"""

import argparse
import ctypes
import functools
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops, reference

from benchmarks.dlrm_training import __main__ as dlrm_training
from benchmarks.dlrm_training import workload
from benchmarks.harness import report
from benchmarks.harness.report import Page, summary, table
from benchmarks.harness.training import TrainingMeasurements
from benchmarks.harness.worker import peak_memory_mib, reset_peak_memory, timed_in_turn
from nn.layers.fused_op import custom_op
from nn.layers.interaction import DotInteraction, pairwise_dots

TARGET_RATIO = 3
BATCH, FEATURES, DIM = 8192, workload.NUM_FEATURES, workload.EMBEDDING_DIM
WARM_UP_CALLS = 3
OP, OURS, PLAIN = "op", "dot_tensorflow", "plain"
BOTH = "forward and backward"
STEP_SIDES = {"dot_custom": OP, "dot_tensorflow": OURS}


def interactions(dtype: str, apart: bool) -> dict[str, Callable]:
    """Functions of (features, bottom); `apart`: of tensors that lie apart, as in the model."""
    if apart:
        return {
            side: DotInteraction(name, dtype="mixed_bfloat16" if dtype == "bfloat16" else dtype)
            for name, side in STEP_SIDES.items()
        }

    def ours(features, bottom):
        pairs = pairwise_dots(features)
        padding = workload.PADDED_WIDTH - DIM - pairs.shape[1]
        zeros = tf.zeros([tf.shape(features)[0], padding], features.dtype)
        return tf.concat([bottom, pairs, zeros], axis=1)

    return {
        OP: dot_based_interact_ops.dot_based_interact,
        OURS: ours,
        PLAIN: reference.dot_based_interact,
    }


class InteractionSide:
    """One way to compute the interaction: its forward pass, and forward and backward together."""

    def __init__(self, interact: Callable, dtype: str, apart: bool):
        generator = np.random.default_rng(1)
        shapes = [(BATCH, FEATURES - apart, DIM), (BATCH, DIM), (BATCH, workload.PADDED_WIDTH)]
        # From NumPy: TensorFlow keeps the memory of what it drops, and would use it again.
        numbers = (generator.standard_normal(shape, np.float32) for shape in shapes)
        inputs = [tf.constant(x.astype(tf.as_dtype(dtype).as_numpy_dtype)) for x in numbers]
        signature = [tf.TensorSpec([None, *x.shape[1:]], dtype) for x in inputs]

        @tf.function(autograph=False, input_signature=signature)
        def forward(features, bottom, upstream):
            return interact(features, bottom)

        @tf.function(autograph=False, input_signature=signature)
        def both(features, bottom, upstream):
            with tf.GradientTape() as tape:
                tape.watch((features, bottom))
                output = interact(features, bottom)
            return output, tape.gradient(output, (features, bottom), output_gradients=upstream)

        self.inputs = inputs
        self.functions = {"forward": forward, BOTH: both}

    def call(self, what: str, samples: int | None = None):
        """The result of "forward" or `BOTH` for the first samples, or for all."""
        return self.functions[what](*(x[:samples] if samples else x for x in self.inputs))


def extra_mib(side: str, dtype: str, apart: bool) -> float:
    """Memory of a first forward and backward pass beyond inputs, output and gradients."""
    measured = InteractionSide(interactions(dtype, apart)[side], dtype, apart)
    measured.call(BOTH, samples=1)  # everything but the tensors is there now
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    reset_peak_memory()
    before = peak_memory_mib()
    results = measured.call(BOTH)
    kept = sum(x.shape.num_elements() * x.dtype.size for x in tf.nest.flatten(results)) / 2**20
    return peak_memory_mib() - before - kept


def extra_mib_of_a_process(*what) -> float:
    command = [sys.executable, "-m", "benchmarks.dot_interaction", "--memory_of", json.dumps(what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def check_same_results(sides: dict[str, InteractionSide]) -> None:
    """Raises RuntimeError if the sides do not compute the same."""
    results = {
        name: [tf.cast(x, tf.float32).numpy() for x in tf.nest.flatten(side.call(BOTH, 64))]
        for name, side in sides.items()
    }
    tolerance = 1e-4 if sides[OP].inputs[0].dtype == tf.float32 else 5e-2
    for name, tensors in results.items():
        for tensor, expected in zip(tensors, results[OP], strict=True):
            is_equal = tensor.shape == expected.shape
            if not is_equal or np.abs(tensor - expected).max() > tolerance * np.abs(expected).max():
                raise RuntimeError(f"{name} and {OP} do not compute the same")


def measure_calls(
    sides: dict[str, InteractionSide], rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds by side and call, one value per round."""
    calls = {
        (name, what): functools.partial(side.call, what)
        for name, side in sides.items()
        for what in side.functions
    }
    return timed_in_turn(calls, rounds, WARM_UP_CALLS, alternates=True)


def measure_steps(args: argparse.Namespace) -> TrainingMeasurements:
    ours = dlrm_training.OURS
    sides = [ours._replace(name=name, flags=("--interaction", name)) for name in STEP_SIDES]
    cases = [
        case._replace(sides=sides, parts=(), products=())
        for case in dlrm_training.cases_of(args.step_rounds, WARM_UP_CALLS)
    ]
    measurements, num_rows = TrainingMeasurements(cases), workload.NUM_BATCHES * workload.BATCH_SIZE
    measurements.measure_all(
        lambda folder, _: workload.make_rows(folder / "rows", num_rows, workload.TABLE_ROWS), args
    )
    return measurements


def speed_up(times, name: str) -> np.ndarray:
    """The op's speed relative to another side, both passes, one value per round."""
    return np.asarray(times[name, BOTH]) / np.asarray(times[OP, BOTH])


def calls_table(times, memory: dict[str, float]) -> list[str]:
    """Lines of a table of `measure_calls`."""
    rows = []
    for name, mib in memory.items():
        faster = "" if name == OP else f"{summary(speed_up(times, name), '.2f')} x"
        ms = (summary(times[name, what], ".1f") for what in ("forward", BOTH))
        rows.append((name, *ms, faster, f"{mib:.0f} MiB"))
    columns = ("forward, ms", "forward and backward, ms", "op is faster", "extra memory")
    return table(("side", *columns), rows)


def facts_of(args: argparse.Namespace) -> list[str]:
    return [
        f"TensorFlow {tf.__version__}; the op's instruction set: {custom_op().cpu_isa()}",
        f"{BATCH:,} samples x {FEATURES} features x {DIM}, {args.threads} threads; median "
        "[quartiles] over the rounds, which alternate",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rounds=40, steps=4, threads=2)
    parser.add_argument("--step_rounds", type=int, default=12, help="0 leaves the steps out")
    parser.add_argument("--memory_of", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    if args.memory_of:
        print(extra_mib(*args.memory_of))
        return 0
    commands = [report.command("dot_interaction", args)]
    page = Page("The fused dot interaction on a CPU", commands, facts_of(args))
    ratios = []
    for apart in (False, True):
        for dtype in workload.PRECISIONS:
            functions = interactions(dtype, apart)
            memory = {name: extra_mib_of_a_process(name, dtype, apart) for name in functions}
            sides = {
                name: InteractionSide(interact, dtype, apart)
                for name, interact in functions.items()
            }
            check_same_results(sides)
            times = measure_calls(sides, args.rounds)
            what = "embeddings and bottom apart, as in the model" if apart else "joined input"
            page.add(f"{dtype}, {what}", *calls_table(times, memory))
            ratios.append(float(np.median(speed_up(times, PLAIN if not apart else OURS))))
            del sides
            gc.collect()
    if args.step_rounds:
        lines = measure_steps(args).steps_table("precision", "dot_custom is faster by", ".3f")
        page.add(f"Training step, batch {workload.BATCH_SIZE:,}", *lines)
    text = "forward and backward in float32, joined input"
    text = f"{text}: {ratios[0]:.2f} times as fast as the plain version"
    page.judge(text, TARGET_RATIO, ratios[0] >= TARGET_RATIO)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
