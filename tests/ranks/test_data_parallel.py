"""Tape, optimizer and broadcast on two ranks (data_parallel_worker.py), and on one process."""

import gc
import os
import re
import subprocess

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras

from tests.ranks import data_parallel_worker
from tests.ranks.conftest import gloo_command

# adagrad, adam, legacy_sgd and fused_optimizers remain
LONG_CASES = ("sgd", "legacy_adagrad", "legacy_adam", "all_fused_optimizers")


@pytest.fixture(scope="module")
def two_ranks(root, request, quick_python):
    """The output of the worker, which ends at the first case that fails."""
    pytest.importorskip("horovod", reason="Horovod is not installed")
    left_out = () if request.config.getoption("--long") else LONG_CASES
    cases = [case for case in data_parallel_worker.CASES if case not in left_out]
    worker = [quick_python, "-m", data_parallel_worker.__name__, *cases]
    return subprocess.run(
        [*gloo_command(), "-np", "2", *worker],
        cwd=root,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "HOROVOD_CYCLE_TIME": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.long) if case in LONG_CASES else case
        for case in data_parallel_worker.CASES
    ],
)
def test_two_ranks(two_ranks, case):
    done = re.findall(rf"rank (\d) of 2: {case} ok", two_ranks.stdout)
    assert sorted(done) == ["0", "1"], two_ranks.stdout + two_ranks.stderr


@pytest.mark.parametrize("wrap_first", [False, True])
def test_tape_of_one_process(wrap_first):
    own, other = tf.Variable(3.0), tf.Variable(2.0)
    own.de_local = True
    if wrap_first:
        with dmp.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
            loss = own * other
    else:
        with tf.GradientTape(persistent=True) as tape:
            loss = own * other
        tape = dmp.DistributedGradientTape(tape, sparse_as_dense=True)
    gradients = tape.gradient(loss, {"own": own, "none": tf.Variable(1.0)}, use_generic_names=True)
    assert float(gradients["own"]) == 2.0 and gradients["none"] is None
    assert [float(g) for g in tape.gradient(loss, [own, other], output_gradients=2.0)] == [4, 6]
    assert [v.ref() for v in tape.watched_variables()] == [own.ref(), other.ref()]
    tape.register_local_source(other)
    mine, ours = tape.get_local_and_global_gradients(loss, [own, other])
    assert [float(g) for _, g in mine] == [2.0, 3.0] and ours == []


def test_garbage_collection_with_a_wrapped_tape():
    variable = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        loss = variable * variable
    tape = dmp.DistributedGradientTape(tape)
    gc.collect()
    assert float(tape.gradient(loss, variable)) == 6.0


def test_recorded_operations_of_one_process():
    watched, reset = tf.constant([1.0, 2.0]), tf.Variable(1.0)
    with dmp.DistributedGradientTape(
        tf.GradientTape(persistent=True, watch_accessed_variables=False)
    ) as tape:
        tape.watch(watched)
        squares = watched * watched
        with tape.stop_recording():
            hidden = watched * 5.0
    assert tape.gradient(squares, watched).numpy().tolist() == [2, 4]
    assert tape.gradient(hidden, watched) is None
    zero = tape.gradient(hidden, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zero.numpy().tolist() == [0, 0]
    assert tape.jacobian(squares, watched).numpy().tolist() == [[2, 0], [0, 4]]
    with dmp.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        lost = reset * 2.0
        tape.reset()
        rows = tf.reshape(watched, [2, 1])
        tape.watch(rows)
        squares = rows * rows
    assert tape.gradient(lost, reset) is None
    assert tape.batch_jacobian(squares, rows).numpy().reshape(-1).tolist() == [2, 4]


@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.legacy.SGD])
def test_optimizer_of_one_process(make):
    optimizer = make(0.5)
    config = optimizer.get_config()
    assert dmp.DistributedOptimizer(optimizer, name="any", device_dense="") is optimizer
    assert type(optimizer) is make and optimizer.get_config() == config
    variable = tf.Variable(1.0)
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 0.5


def test_broadcast_of_one_process():
    variable = tf.Variable([1.0])
    dmp.broadcast_variables([variable])
    assert variable.numpy().tolist() == [1.0]
    with pytest.raises(ValueError, match="one of the 1 ranks, got 1"):
        dmp.broadcast_variables([variable], root_rank=1)


@pytest.mark.parametrize("input_shape", [[2], None], ids=["built", "unbuilt"])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_fit_of_one_process(input_shape, policy):
    def weights(wrap, callbacks):
        keras.utils.set_random_seed(1)
        kwargs = {"input_shape": input_shape} if input_shape else {}
        model = keras.Sequential([keras.layers.Dense(1, dtype=policy, **kwargs)])
        optimizer = keras.mixed_precision.LossScaleOptimizer(wrap(keras.optimizers.Adam(0.1)))
        model.compile(optimizer, "mse")
        model.fit(tf.ones([4, 2]), tf.zeros([4, 1]), verbose=0, callbacks=callbacks)
        return model.get_weights()

    callback = dmp.BroadcastGlobalVariablesCallback(0)
    actual = weights(dmp.DistributedOptimizer, [callback])
    assert callback.broadcast_done
    for mine, theirs in zip(actual, weights(lambda optimizer: optimizer, []), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_local_variables_of_the_callback():
    one, other = tf.Variable([1.0, 2.0]), tf.Variable(2.0)
    for variables in (one, [one]):
        callback = dmp.BroadcastGlobalVariablesCallback(0, local_variables=variables)
        callback.register_local_var(other)
        assert callback.local_variables == {one.ref(), other.ref()}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: dmp.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2),
            "backward_passes_per_step=2 is not supported",
        ),
        (
            lambda: dmp.DistributedGradientTape(
                tf.GradientTape(), process_set=type("Set", (), {"ranks": [0, 1]})
            ),
            r"process_set has ranks \[0, 1\], but all 1 must train",
        ),
    ],
)
def test_unsupported_options(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_misspelt_option():
    with pytest.raises(TypeError, match="sparse_is_dense"):
        dmp.DistributedOptimizer(keras.optimizers.SGD(), sparse_is_dense=True)
