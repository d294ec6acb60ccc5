"""The compiled operations where they are missing, damaged or without GPU kernels."""

import json
import types

import distributed_embeddings_kernels
import pytest
import tensorflow as tf
from distributed_embeddings.ops import kernels


@pytest.fixture
def fresh():
    """Forgets what is loaded, before and after a test."""

    def forget():
        kernels.library.cache_clear()
        kernels._gpu_problem.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def installed(monkeypatch, tmp_path, fresh):
    """Returns a function that installs a library of the given bytes and description."""

    def install(contents=b"no library", **changes):
        library = tmp_path / "op.so"
        library.write_bytes(contents)
        facts = {"tensorflow": tf.__version__, "cuda": [], "bytes": len(contents), **changes}
        library.with_suffix(".json").write_text(json.dumps(facts))
        monkeypatch.setattr(distributed_embeddings_kernels, "LIBRARY", library)

    return install


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tensorflow": "2.9.1"}, rf"built for TensorFlow 2\.9\.1, this is {tf.__version__}"),
        ({"bytes": 11}, r"op\.so is not the whole library"),
        ({}, r"op\.so cannot be loaded"),
    ],
)
def test_libraries_that_do_not_fit(installed, changes, reason):
    installed(**changes)
    with pytest.raises(kernels.KernelsMissing, match=reason) as caught:
        kernels.library()
    assert kernels.reason_for_fallback() == str(caught.value)


def test_library_of_an_earlier_version(monkeypatch, installed):
    installed()
    monkeypatch.setattr(tf, "load_op_library", lambda path: types.SimpleNamespace())
    with pytest.raises(kernels.KernelsMissing, match=r"op\.so is of an earlier version"):
        kernels.library()


def test_damaged_description(installed):
    installed()
    distributed_embeddings_kernels.LIBRARY.with_suffix(".json").write_text("{")
    with pytest.raises(kernels.KernelsMissing, match=r"op\.so cannot be loaded"):
        kernels.library()


@pytest.fixture
def gpu(monkeypatch, fresh):
    """Returns a function that sets what the operations do on a GPU, as far as the choice looks."""
    compiled = kernels.library()
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["GPU:0"])
    monkeypatch.setattr(tf, "device", lambda _: tf.name_scope("GPU"))

    def set_up(cuda, failure=None):
        def look_up(*arguments, **attributes):
            if failure is not None:
                raise tf.errors.InternalError(None, None, failure)
            return compiled.resource_embedding_bag(*arguments, **attributes)

        settings = {"cuda": cuda}
        monkeypatch.setattr(kernels, "build", lambda: settings)
        operations = types.SimpleNamespace(resource_embedding_bag=look_up)
        monkeypatch.setattr(kernels, "library", lambda: operations)

    yield set_up
    monkeypatch.undo()


@pytest.mark.parametrize("traced", [False, True])
def test_gpu(gpu, traced):
    gpu(["90"])
    reason = kernels.reason_for_fallback
    assert (tf.function(reason, autograph=False) if traced else reason)() is None


@pytest.mark.parametrize(
    ("cuda", "failure", "reason"),
    [
        ([], None, "built without GPU kernels (`make op CUDA=1`)"),
        (["90"], "no kernel image", "the GPU cannot run distributed-embeddings-kernels (no kernel"),
    ],
)
def test_gpu_without_kernels(gpu, cuda, failure, reason):
    gpu(cuda, failure)
    assert reason in kernels.reason_for_fallback()
