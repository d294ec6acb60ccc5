"""Dynamic loss scaling: of the trainer, over ranks, and of whole trainings in float16 on a CPU."""

import itertools

import pytest
import tensorflow as tf
from embedding_testing.fake_world import TensorWorld, run_threads

from nn.optim import optimizers
from nn.train.loss_scale import LossScale
from nn.train.trainer import Trainer
from runtime import checkpoint
from tests.recipes.test_entry_scripts import TINY, in_process, lines
from tests.tables import check_same_arrays


def weight_trainer(accumulate=1, world=None):
    """A trainer of one weight with SGD, of which each batch is the gradient."""
    w = tf.Variable(1.0)
    group = optimizers.create("sgd", [w], 0.5)
    more = {} if world is None else {"world": world}
    trainer = Trainer(
        *(w, lambda w, batch: (tf.reduce_mean(batch) * w, {}), [group], "dynamic"),
        num_parts=accumulate,
        **more,
    )
    return w, trainer


def batches(*values):
    return iter(tf.data.Dataset.from_tensor_slices(tf.constant(values, tf.float32)[:, None]))


def scale_of(trainer):
    return trainer.progress().loss_scale


@pytest.mark.parametrize("accumulate", [1, 2])
def test_overflow(accumulate):
    # 1e37 * 2^15 overflows float32, the loss itself is finite.
    w, trainer = weight_trainer(accumulate)
    rows = tf.constant([[1e37, 1e37], [1.0, 3.0]])
    iterator = iter(tf.data.Dataset.from_tensor_slices(rows))
    assert scale_of(trainer) == 2**15
    trainer.train_step(iterator)
    assert (float(w), scale_of(trainer)) == (1.0, 2**14)
    trainer.train_step(iterator)
    assert (float(w), scale_of(trainer)) == (1 - 0.5 * 2, 2**14)
    progress = trainer.progress()
    assert (progress.step, progress.skipped_steps, progress.first_bad_step) == (2, 1, 0)


def test_growth():
    """A step that is not finite begins the count of 2,000 good ones again."""
    scale = LossScale("dynamic")

    @tf.function
    def steps(count, finite):
        for _ in tf.range(count):
            scale.update(finite)

    for count, finite, factor, good_steps in (
        (999, True, 2**15, 999),
        (1, False, 2**14, 0),
        (1999, True, 2**14, 1999),
        (1, True, 2**15, 0),
        (3001, True, 2**16, 1001),
    ):
        steps(tf.constant(count), tf.constant(finite))
        assert (float(scale.factor), scale.state()["good_steps"]) == (factor, good_steps)


def test_limits_of_the_scale():
    scale = LossScale("dynamic")
    for _ in range(20):
        scale.update(tf.constant(False))
    assert float(scale.factor) == 1.0
    scale.set_state({"loss_scale": 2.0**127, "good_steps": 1999})
    scale.update(tf.constant(True))
    assert scale.state() == {"loss_scale": 2.0**127, "good_steps": 0}


def test_static_state():
    scale = LossScale(512.0)
    scale.set_state({"loss_scale": 8.0, "good_steps": 3})
    scale.update(tf.constant(False))
    assert (scale.factor, scale.state()) == (512.0, {})
    assert scale.is_used and not LossScale(1.0).is_used


def test_overflow_on_one_rank():
    """Rank 1's own table overflows; the weight of both ranks stays, and the scale is halved."""

    def run(world):
        own, copied = tf.Variable([1.0]), tf.Variable([1.0])
        own.de_local = True
        both = [optimizers.create("sgd", [v], 0.5) for v in (copied, own)]
        world = TensorWorld(world)

        def loss(_, batch):
            return tf.reduce_sum(batch * own + copied), {}

        trainer = Trainer(None, loss, both, "dynamic", world=world)
        values = [1.0 + 1e38 * world.rank, 1.0]
        iterator = iter(tf.data.Dataset.from_tensor_slices(values))
        states = []
        for _ in values:
            trainer.train_step.python_function(iterator)
            states.append((float(own[0]), float(copied[0]), float(trainer.loss_scale.factor)))
        return states

    results = run_threads(2, run)
    # The loss is divided by the number of ranks, and the copied weight's gradient is their sum.
    assert results == [[(1.0, 1.0, 2**14), (0.75, 0.5, 2**14)]] * 2


def test_resumed_training(float16_on_a_cpu, tiny, tmp_path):
    def flags(name, steps):
        saved = f"--save_checkpoint_path={tmp_path / name}"
        own = ("--amp", "--loss_scale=dynamic", "--print_freq=1", "--epochs=4", "--resume=auto")
        return (f"--dataset_path={tiny}", *TINY, *own, f"--max_steps={steps}", saved)

    for name, ends in (("whole", (14,)), ("parts", (5, 14))):
        for end in ends:
            code, summary = in_process(tmp_path / "run", *flags(name, end))
            assert code == 0 and summary["steps"] == end
    check_same_arrays(tmp_path / "whole", tmp_path / "parts")
    states = [
        checkpoint.describe(checkpoint.resolve(tmp_path / name)).state["trainer"]
        for name in ("whole", "parts")
    ]
    assert states[0] == states[1]
    logged = [line["data"] for line in lines(tmp_path / "run/log.json") if "data" in line]
    scales = [data["loss_scale"] for data in logged if "skipped_steps" in data]
    assert 0 < states[0]["skipped_steps"] < 12
    assert max(b / a for a, b in itertools.pairwise(scales)) == 2.0
    assert min(b / a for a, b in itertools.pairwise(scales)) == 0.5


def test_static_to_dynamic(float16_on_a_cpu, tiny, tmp_path):
    saved = f"--resume={tmp_path / 'model'}"
    flags = (f"--dataset_path={tiny}", *TINY, "--amp", "--epochs=4")
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    static = ("--max_steps=2", "--loss_scale=64", save)
    assert in_process(tmp_path / "a", *flags, *static)[0] == 0
    dynamic = ("--max_steps=4", "--loss_scale=dynamic", saved)
    assert in_process(tmp_path / "b", *flags, *dynamic)[0] == 0
    state = checkpoint.describe(checkpoint.resolve(tmp_path / "model")).state["trainer"]
    assert state["loss_scale"] == 2.0**27 / 2 ** state["skipped_steps"]
