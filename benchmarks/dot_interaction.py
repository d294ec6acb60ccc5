"""The fused dot interaction beside plain TensorFlow, and what it does for a training step.

    make bench-op
    python -m benchmarks.dot_interaction --output benchmarks/results/dot_interaction_CPU_YYYYMM.md

Three comparisons, each interleaved, the order alternating from round to round:

- the op on [batch, features, dim] beside the package's `reference.py`, the plain version, and
  beside this toolkit's own `dot_tensorflow`, whose gradient is written by hand;
- the layer as the model calls it, on embeddings and bottom MLP output that still lie apart;
- the training step of `dlrm_training` with `--interaction dot_custom` and `dot_tensorflow`.

The exit code is 1 if forward and backward of the op together are not 3 times as fast as the plain
version in float32.
"""

import argparse
import contextlib
import gc
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks import dlrm_workload as workload
from benchmarks import machine
from benchmarks.dlrm_report import summary
from benchmarks.dlrm_training import start_ours
from benchmarks.worker import timed_ms

TARGET_RATIO = 3.0
BATCH, FEATURES, DIM = 8192, workload.NUM_FEATURES, workload.EMBEDDING_DIM
WARM_UP_CALLS = 3
OP, OURS, PLAIN = "op", "dot_tensorflow", "plain"
STEP_SIDES = {"dot_custom": OP, "dot_tensorflow": OURS}


class Side:
    """One way to compute the interaction: its forward pass, and forward and backward together.

    Args:
      interact: (features, bottom) -> output.
      features: [batch, features, dim].
      bottom: [batch, dim].
    """

    def __init__(self, interact: Callable, features, bottom):
        import tensorflow as tf

        upstream = tf.cast(tf.random.normal(interact(features, bottom).shape), features.dtype)

        @tf.function(autograph=False)
        def forward():
            return interact(features, bottom)

        @tf.function(autograph=False)
        def both():
            with tf.GradientTape() as tape:
                tape.watch((features, bottom))
                output = interact(features, bottom)
            return output, tape.gradient(output, (features, bottom), output_gradients=upstream)

        self.calls = {"forward": forward, "forward and backward": both}
        for call in self.calls.values():
            for _ in range(WARM_UP_CALLS):
                call()

    def extra_mib(self) -> float:
        """Memory of a forward and backward pass beyond that of inputs, output and gradients.

        Counted from the resident memory, so that it also holds what the allocator keeps.
        """
        import tensorflow as tf

        gc.collect()
        machine.reset_peak_memory()
        before = machine.peak_memory_mib()
        results = self.calls["forward and backward"]()
        kept = sum(x.shape.num_elements() * x.dtype.size for x in tf.nest.flatten(results)) / 2**20
        return machine.peak_memory_mib() - before - kept


def sides(dtype: str, apart: bool) -> dict[str, Side]:
    """The sides of a comparison.

    Args:
      dtype: "float32" or "bfloat16".
      apart: embeddings and bottom MLP output lie apart, as in the model.
    """
    import tensorflow as tf
    from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops, reference

    from nn.interaction import DotInteraction, padded_width, pairwise_dots

    tf.random.set_seed(1)
    features = tf.cast(tf.random.normal([BATCH, FEATURES, DIM]), dtype)
    bottom = features[:, 0, :]
    if apart:
        embeddings = features[:, 1:, :]
        layers = {name: DotInteraction(name, dtype=dtype) for name in STEP_SIDES}
        return {side: Side(layers[name], embeddings, bottom) for name, side in STEP_SIDES.items()}

    def ours(features, bottom):
        pairs = pairwise_dots(features)
        padding = padded_width(DIM + pairs.shape[1]) - DIM - pairs.shape[1]
        return tf.concat([bottom, pairs, tf.zeros([BATCH, padding], features.dtype)], axis=1)

    interactions = {
        OP: dot_based_interact_ops.dot_based_interact,
        OURS: ours,
        PLAIN: reference.dot_based_interact,
    }
    return {name: Side(interact, features, bottom) for name, interact in interactions.items()}


def measure_calls(found: dict[str, Side], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Milliseconds by side and call, a value a round."""
    times = defaultdict(list)
    for number in range(rounds):
        order = list(found.items())
        for name, side in order if number % 2 else order[::-1]:
            for what, call in side.calls.items():
                times[name, what].append(timed_ms(call))
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
            worker = start_ours(folder, args.threads, "--interaction", name)
            workers[name] = stack.enter_context(contextlib.closing(worker))
            worker.ask("start", precision=precision)
            worker.ask("steps", precision=precision, count=WARM_UP_CALLS)
        for number in range(args.step_rounds):
            order = list(workers.items())
            for name, worker in order if number % 2 else order[::-1]:
                answer = worker.ask("steps", precision=precision, count=args.steps)
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
            f"{summary(times[name, both], '.1f')} | {faster} | {memory[name]:.0f} MiB |"
        )
    return lines


def steps_table(times: dict[str, dict[str, list[float]]]) -> list[str]:
    """Rows of a table of `measure_steps`, by precision."""
    lines = ["| precision | `dot_tensorflow`, ms | `dot_custom`, ms | faster |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for precision, found in times.items():
        before, after = found["dot_tensorflow"], found["dot_custom"]
        lines.append(
            f"| {precision} | {summary(before, '.1f')} | {summary(after, '.1f')} | "
            f"{summary(ratios(before, after), '.3f')} x |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--step_rounds", type=int, default=12, help="0 leaves the steps out")
    parser.add_argument("--steps", type=int, default=4, help="steps of a side's turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="results page to write (Markdown)")
    args = parser.parse_args()

    import tensorflow as tf

    from nn.interaction import custom_op

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    isa = custom_op().cpu_isa()
    page = ["# The fused dot interaction on a CPU", ""]
    page += [
        f"`python -m benchmarks.dot_interaction --rounds {args.rounds} --threads {args.threads}`",
        "",
    ]
    page += [f"- {name}: {fact}" for name, fact in machine.describe().items()]
    page += [f"- TensorFlow {tf.__version__}; the op's instruction set: {isa}"]
    page += [
        f"- {BATCH:,} samples x {FEATURES} features x {DIM}, {args.threads} threads; median "
        "[quartiles] over the rounds; `plain` is the package's `reference.py`: the whole Gram "
        "matrix, a gather of its triangle, TensorFlow's own gradients"
    ]
    page += ["- extra memory: beyond inputs, output and gradients, of one forward and backward"]
    verdict = None
    for apart in (False, True):
        for dtype in workload.PRECISIONS:
            found = sides(dtype, apart)
            memory = {name: side.extra_mib() for name, side in found.items()}
            times = measure_calls(found, args.rounds)
            what = "embeddings and bottom apart, as in the model" if apart else "joined input"
            page += ["", f"## {dtype}, {what}", "", *calls_table(times, memory)]
            if verdict is None:
                both = "forward and backward"
                verdict = statistics.median(ratios(times[PLAIN, both], times[OP, both]))
            del found, times
            gc.collect()
    if args.step_rounds:
        steps = {precision: measure_steps(args, precision) for precision in workload.PRECISIONS}
        page += ["", f"## Training step, batch {workload.BATCH_SIZE:,}", "", *steps_table(steps)]
    met = verdict >= TARGET_RATIO
    page += [
        "",
        "## Verdict",
        "",
        f"Forward and backward in float32, joined input: {verdict:.2f} times as "
        f"fast as the plain version, target {TARGET_RATIO:.0f}: {'met' if met else 'missed'}.",
    ]
    text = "\n".join(page) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
