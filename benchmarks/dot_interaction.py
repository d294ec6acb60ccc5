"""The fused dot interaction compared with plain TensorFlow, alone and in a training step.

- the op on [batch, features, dim] compared with the package's `reference.py`, the plain version;
- the layer as the model calls it, on embeddings and bottom MLP output that still lie apart,
  compared with this toolkit's `dot_tensorflow`, whose gradient is written by hand;
- the training step of `dlrm_training` with `--interaction dot_custom` and `dot_tensorflow`.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops, reference

from benchmarks import dlrm_training
from benchmarks.harness import training
from benchmarks.harness.result_page import Page, in_turns, summary, table
from benchmarks.harness.worker import timed_ms
from nn.layers.fused_op import custom_op
from nn.layers.interaction import DotInteraction

TARGET_RATIO = 3
ROUNDS, WARM_UP_CALLS = 40, 3
BATCH, FEATURES, DIM = 8192, 27, 128
OP, PLAIN = "op", "plain TensorFlow"
BOTH = "forward and backward"
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def interactions(dtype: str, apart: bool) -> dict[str, Callable]:
    """Functions of (features, bottom); `apart`: of tensors that lie apart, as in the model."""
    if not apart:
        plain = reference.dot_based_interact
        return {OP: dot_based_interact_ops.dot_based_interact, PLAIN: plain}
    policy = "mixed_bfloat16" if dtype == "bfloat16" else dtype
    names = {OP: "dot_custom", PLAIN: "dot_tensorflow"}
    return {side: DotInteraction(name, dtype=policy) for side, name in names.items()}


def calls_of(interact: Callable, inputs: Sequence[tf.Tensor]) -> dict[str, Callable]:
    """The forward pass, and forward and backward together; inputs: features, bottom, gradient."""
    features, bottom, upstream = inputs

    @tf.function(autograph=False)
    def forward():
        return interact(features, bottom)

    @tf.function(autograph=False)
    def both():
        with tf.GradientTape() as tape:
            tape.watch((features, bottom))
            output = interact(features, bottom)
        return output, *tape.gradient(output, (features, bottom), output_gradients=upstream)

    return {"forward": forward, BOTH: both}


def compare(batch: int, dtype: str, apart: bool, rounds: int) -> dict[tuple, np.ndarray]:
    """Milliseconds by side and call, one value per round.

    Raises:
        RuntimeError: the sides do not compute the same.
    """
    generator, width = np.random.default_rng(1), DIM + FEATURES * (FEATURES - 1) // 2
    shapes = [(batch, FEATURES - apart, DIM), (batch, DIM), (batch, -(-width // 8) * 8)]
    numbers = (generator.standard_normal(shape, np.float32) for shape in shapes)
    inputs = [tf.cast(x, dtype) for x in numbers]
    sides = {name: calls_of(f, inputs) for name, f in interactions(dtype, apart).items()}
    results = ([tf.cast(x, tf.float32).numpy() for x in side[BOTH]()] for side in sides.values())
    for ours, plain in zip(*results, strict=True):
        limit = TOLERANCE[dtype] * np.abs(plain).max()
        if ours.shape != plain.shape or np.abs(ours - plain).max() > limit:
            raise RuntimeError(f"{OP} and {PLAIN} do not compute the same")
    times = defaultdict(list)
    for name in in_turns(list(sides), WARM_UP_CALLS + rounds):
        for what, call in sides[name].items():
            times[name, what].append(timed_ms(call))
    return {key: np.asarray(ms[WARM_UP_CALLS:]) for key, ms in times.items()}


def main(argv: Sequence[str] | None = None) -> int:
    options = (training.TrainingOptions, argv, "dot_interaction", __doc__)
    args = training.parse(*options, package=None, rounds=12, steps=4)
    batch, rounds = (64, 2) if args.quick else (BATCH, ROUNDS)
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    facts = [
        f"TensorFlow {tf.__version__}; the op's instruction set: {custom_op().cpu_isa()}",
        f"{batch:,} samples x {FEATURES} features x {DIM}, {args.threads} threads; median "
        f"[quartiles] over the rounds, which alternate, {rounds} of the operation",
    ]
    page = Page("The dot interaction on a CPU", "dot_interaction", args, facts)
    rows = []
    for apart in (False, True):
        for dtype in TOLERANCE:
            times = compare(batch, dtype, apart, rounds)
            ratio = times[PLAIN, BOTH] / times[OP, BOTH]
            what = "embeddings and bottom apart" if apart else "joined input"
            for name in (OP, PLAIN):
                ms = (summary(times[name, call], ".1f") for call in ("forward", BOTH))
                faster = "" if name == OP else summary(ratio, ".2f")
                rows.append((f"{dtype}, {what}", name, *ms, faster))
            if not apart and dtype == "float32":
                text = f"{dtype}, {what}: {np.median(ratio):.2f} times as fast as {PLAIN}"
                page.judge(text, TARGET_RATIO, float(np.median(ratio)) >= TARGET_RATIO)
    columns = ("case", "side", "forward, ms", "forward and backward, ms", "op is faster by")
    page.add("The operation", *table(columns, rows, num_text=2))
    sides = [
        dlrm_training.OURS._replace(name=name, options=(("interaction", name),))
        for name in ("dot_custom", "dot_tensorflow")
    ]
    cases = dlrm_training.cases_of(sides, args)
    results = training.measure_all(cases, dlrm_training.make_rows, args)
    page.add("Training step", *training.steps_table(results, "dot_custom is faster by"))
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
