"""Programs that select Keras 3; test_wheel.py runs one that selects no version of Keras."""

from pathlib import Path

import pytest
import tensorflow as tf

PACKAGE = Path(__file__).resolve().parents[1]
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


@pytest.mark.skipif(tf.__version__ < "2.16", reason="TensorFlow has Keras 2")
def test_error_of_keras_3(run_script):
    done = run_script("-c", OF_KERAS_3, cwd=PACKAGE, env={"TF_USE_LEGACY_KERAS": "0"})
    for error in done.stdout.splitlines():
        assert "expected one of Keras 2" in error and "got keras." in error
    assert done.stdout.count("\n") == 2, done.stderr
