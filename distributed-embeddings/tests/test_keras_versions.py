"""Programs that do not select a version of Keras, and programs that select Keras 3."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

PACKAGE = Path(__file__).resolve().parents[1]
# The three changes that the original's document shows, in a program that is otherwise complete.
PROGRAM = """
import tensorflow as tf
from distributed_embeddings.python.layers import dist_model_parallel as dmp


class MyEmbeddingModel(tf.keras.Model):
    def __init__(self, table_sizes):
        super().__init__()
        layers = [tf.keras.layers.Embedding(*size) for size in table_sizes]
        self.embedding_layers = dmp.DistributedEmbedding(layers)
        self.dense = tf.keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(tf.concat(self.embedding_layers(inputs), axis=1))


@tf.function
def training_step(inputs, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = tf.reduce_mean(tf.square(labels - model(inputs)))
    tape = dmp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss_value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        dmp.broadcast_variables(model.variables, root_rank=0)
    return loss_value


model, optimizer = MyEmbeddingModel([(10, 4), (20, 4)]), tf.keras.optimizers.SGD(1.0)
inputs = [tf.constant([1, 2]), tf.constant([2, 3])]
model(inputs)
before = model.embedding_layers.get_weights()
for batch in range(3):
    training_step(inputs, tf.constant([[0.0], [1.0]]), batch == 0)
after = model.embedding_layers.get_weights()
print([bool((old != new).any()) for old, new in zip(before, after)])
"""

OF_KERAS_3 = """
import distributed_embeddings as dmp, tensorflow as tf
for make in (
    lambda: dmp.DistributedEmbedding([tf.keras.layers.Embedding(10, 4)]),
    lambda: dmp.DistributedOptimizer(tf.keras.optimizers.SGD(1.0)),
):
    try:
        make()
    except Exception as error:
        print(str(error).replace("\\n", " "))
"""


def run(program, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    environment |= {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_program_of_the_document():
    done = run(PROGRAM)
    assert done.stdout == "[True, True]\n", done.stderr


@pytest.mark.skipif(tf.__version__ < "2.16", reason="TensorFlow has Keras 2")
def test_error_of_keras_3():
    done = run(OF_KERAS_3, TF_USE_LEGACY_KERAS="0")
    for error in done.stdout.splitlines():
        assert "expected one of Keras 2" in error and "got keras." in error
    assert done.stdout.count("\n") == 2, done.stderr
