"""The fused dot interaction compared with plain TensorFlow, alone and in a training step.

    make bench-op
    python -m benchmarks.dot_interaction --output benchmarks/results/dot_interaction_CPU_YYYYMM.md

Three comparisons, each interleaved, the order alternating from round to round:

- the op on [batch, features, dim] compared with the package's `reference.py`, the plain version,
  and with this toolkit's own `dot_tensorflow`, whose gradient is written by hand;
- the layer as the model calls it, on embeddings and bottom MLP output that still lie apart;
- the training step of `dlrm_training` with `--interaction dot_custom` and `dot_tensorflow`.

The exit code is 1 if forward and backward of the op together are not 3 times as fast as the plain
version in float32.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.__main__ import OURS as OUR_TRAINING
from benchmarks.harness import machine
from benchmarks.harness.report import finish, machine_facts, summary
from benchmarks.harness.worker import timed_ms

TARGET_RATIO = 3.0
BATCH, FEATURES, DIM = 8192, workload.NUM_FEATURES, workload.EMBEDDING_DIM
WARM_UP_CALLS = 3
WIDTH = -(-workload.INTERACTION_WIDTH // 8) * 8
OP, OURS, PLAIN = "op", "dot_tensorflow", "plain"
BOTH = "forward and backward"
STEP_SIDES = {"dot_custom": OP, "dot_tensorflow": OURS}


def interactions(dtype: str, apart: bool) -> dict[str, Callable]:
    """The sides of a comparison: functions of (features, bottom), of any batch.

    Args:
        dtype: "float32" or "bfloat16".
        apart: embeddings and bottom MLP output lie apart, as in the model.
    """
    import tensorflow as tf
    from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops, reference

    from nn.layers.interaction import DotInteraction, padded_width, pairwise_dots

    if apart:
        return {
            side: DotInteraction(name, dtype="mixed_bfloat16" if dtype == "bfloat16" else dtype)
            for name, side in STEP_SIDES.items()
        }

    def ours(features, bottom):
        pairs = pairwise_dots(features)
        padding = padded_width(DIM + pairs.shape[1]) - DIM - pairs.shape[1]
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
        import tensorflow as tf

        generator = np.random.default_rng(1)
        shapes = [(BATCH, FEATURES - apart, DIM), (BATCH, DIM), (BATCH, WIDTH)]
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

    def call(self, what: str, samples: int = BATCH):
        """The result of "forward" or `BOTH` for the first samples."""
        whole = samples == BATCH
        return self.functions[what](*(x if whole else x[:samples] for x in self.inputs))


def extra_mib(side: str, dtype: str, apart: bool) -> float:
    """Memory of a forward and backward pass beyond inputs, output and gradients: the peak of what
    is resident, of a pass in which nothing can be taken from an earlier one."""
    import tensorflow as tf

    measured = InteractionSide(interactions(dtype, apart)[side], dtype, apart)
    measured.call(BOTH, samples=1)  # everything but the tensors is there now
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    machine.reset_peak_memory()
    before = machine.peak_memory_mib()
    results = measured.call(BOTH)
    kept = sum(x.shape.num_elements() * x.dtype.size for x in tf.nest.flatten(results)) / 2**20
    return machine.peak_memory_mib() - before - kept


def extra_mib_of_a_process(*what) -> float:
    """`extra_mib`, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.dot_interaction", "--memory_of", json.dumps(what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def check_same_results(sides: dict[str, InteractionSide]) -> None:
    """Raises RuntimeError if the sides do not compute the same."""
    import tensorflow as tf

    results = {
        name: [tf.cast(x, tf.float32).numpy() for x in tf.nest.flatten(side.call(BOTH, 64))]
        for name, side in sides.items()
    }
    tolerance = 1e-4 if sides[OP].inputs[0].dtype == tf.float32 else 5e-2
    for name, tensors in results.items():
        for tensor, of_op in zip(tensors, results[OP], strict=True):
            scale = np.abs(of_op).max()
            if tensor.shape != of_op.shape or np.abs(tensor - of_op).max() > tolerance * scale:
                raise RuntimeError(f"{name} and {OP} do not compute the same")


def measure_calls(
    sides: dict[str, InteractionSide], rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds by side and call, a value a round."""
    times = defaultdict(list)
    for number in range(WARM_UP_CALLS + rounds):
        order = list(sides.items())
        for name, side in order if number % 2 else order[::-1]:
            for what in side.functions:
                taken_ms = timed_ms(functools.partial(side.call, what))
                if number >= WARM_UP_CALLS:
                    times[name, what].append(taken_ms)
    return times


def measure_steps(args, precision: str) -> dict[str, list[float]]:
    """Milliseconds of a training step by interaction, a median of some steps a round."""
    times = defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        num_rows = workload.NUM_BATCHES * workload.BATCH_SIZE
        workload.make_rows(folder / "rows", num_rows, workload.TABLE_ROWS)
        workers = {}
        for name in STEP_SIDES:
            side = OUR_TRAINING._replace(flags=("--interaction", name))
            worker = stack.enter_context(contextlib.closing(side.start(folder, args)))
            workers[name] = worker
            worker.ask("start", precision=precision)
            worker.ask("steps", count=WARM_UP_CALLS)
        for number in range(args.step_rounds):
            order = list(workers.items())
            for name, worker in order if number % 2 else order[::-1]:
                answer = worker.ask("steps", count=args.steps)
                times[name].append(statistics.median(answer["ms"]))
    return times


def ratios(slow: list[float], fast: list[float]) -> list[float]:
    """Round by round, how many times as fast."""
    return [a / b for a, b in zip(slow, fast, strict=True)]


def calls_table(times, memory: dict[str, float]) -> list[str]:
    """Rows of a table of `measure_calls`."""
    names = list(memory)
    lines = ["| side | forward, ms | forward and backward, ms | op is faster | extra memory |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    both = "forward and backward"
    for name in names:
        faster = (
            "" if name == OP else f"{summary(ratios(times[name, both], times[OP, both]), '.2f')} x"
        )
        lines.append(
            f"| {name} | {summary(times[name, 'forward'], '.1f')} | "
            f"{summary(times[name, BOTH], '.1f')} | {faster} | {memory[name]:.0f} MiB |"
        )
    return lines


def steps_table(times: dict[str, dict[str, list[float]]]) -> list[str]:
    """Rows of a table of `measure_steps`, by precision."""
    lines = ["| precision | `dot_tensorflow`, ms | `dot_custom`, ms | faster |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for precision, sides in times.items():
        before, after = sides["dot_tensorflow"], sides["dot_custom"]
        lines.append(
            f"| {precision} | {summary(before, '.1f')} | {summary(after, '.1f')} | "
            f"{summary(ratios(before, after), '.3f')} x |"
        )
    return lines


def setting(args) -> list[str]:
    """The head of the page."""
    import tensorflow as tf

    from nn.layers.fused_op import custom_op

    return [
        "# The fused dot interaction on a CPU",
        "",
        f"`python -m benchmarks.dot_interaction --rounds {args.rounds} --step_rounds "
        f"{args.step_rounds} --steps {args.steps} --threads {args.threads}`",
        "",
        *machine_facts(),
        f"- TensorFlow {tf.__version__}; the op's instruction set: {custom_op().cpu_isa()}",
        f"- {BATCH:,} samples x {FEATURES} features x {DIM}, {args.threads} threads; median "
        "[quartiles] over the rounds, which alternate",
        "- `plain`: the package's `reference.py`, that is the whole Gram matrix, a gather of its "
        "triangle and TensorFlow's own gradients; `dot_tensorflow`: this toolkit's version in "
        "TensorFlow's operations, with a gradient of its own",
        "- extra memory: the peak of a forward and backward pass beyond inputs, output and "
        "gradients, in a process of its own",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--step_rounds", type=int, default=12, help="0 leaves the steps out")
    parser.add_argument("--steps", type=int, default=4, help="steps of a side's turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="results page to write (Markdown)")
    parser.add_argument("--memory_of", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()

    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    if args.memory_of:
        print(extra_mib(*args.memory_of))
        return
    page, verdict = setting(args), None
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
            page += ["", f"## {dtype}, {what}", "", *calls_table(times, memory)]
            if verdict is None:
                verdict = statistics.median(ratios(times[PLAIN, BOTH], times[OP, BOTH]))
            del sides
            gc.collect()
    if args.step_rounds:
        steps = {precision: measure_steps(args, precision) for precision in workload.PRECISIONS}
        page += ["", f"## Training step, batch {workload.BATCH_SIZE:,}", "", *steps_table(steps)]
    met = verdict >= TARGET_RATIO
    page += ["", "## Verdict", ""]
    page += [
        f"Forward and backward in float32, joined input: {verdict:.2f} times as fast as the plain "
        f"version, target {TARGET_RATIO:.0f}: {'met' if met else 'missed'}."
    ]
    text = "\n".join(page) + "\n"
    finish(text, met, args.output)


if __name__ == "__main__":
    main()
