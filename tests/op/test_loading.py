"""Choice of the implementation, its notes, and the fallback without the op."""

import json
import re
import sys

import pytest
import tensorflow as tf
from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops as ops

from nn.layers.fused_op import choose_dot, custom_op
from nn.layers.interaction import DotInteraction


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """The empty folder that the op takes for its own."""
    monkeypatch.setattr(ops, "LIBRARY", tmp_path / "op.so")
    monkeypatch.setattr(ops, "BUILD", tmp_path / "op.json")
    ops.library.cache_clear()
    yield tmp_path
    ops.library.cache_clear()


def test_default_and_build_facts():
    assert choose_dot("dot", "CPU") == ("dot_custom", None)
    assert choose_dot("dot_custom", "CPU") == ("dot_custom", None)
    assert choose_dot("dot_tensorflow", "GPU") == ("dot_tensorflow", None)
    assert ops.build()["tensorflow"] == tf.__version__
    assert ops.cpu_isa() in ("avx512", "avx2", "generic")


@pytest.mark.parametrize("wanted", ["dot", "dot_custom"])
def test_fallback_without_package(wanted, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_dot_based_interact", None)
    for name in [name for name in sys.modules if name.startswith("tensorflow_dot_based_interact.")]:
        monkeypatch.delitem(sys.modules, name)
    chosen, note = choose_dot(wanted, "CPU")
    assert chosen == "dot_tensorflow"
    assert f"--interaction {wanted} is computed by dot_tensorflow" in note
    assert "not installed: run `make op`" in note


def test_error_without_library(elsewhere):
    for call in (custom_op, lambda: DotInteraction("dot_custom")):
        with pytest.raises(ImportError, match=r"op\.so is not built: run `make op`") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert choose_dot("dot", "CPU")[0] == "dot_tensorflow"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensorflow": "2.9.1"}, rf"2\.9\.1, this is {tf.__version__}"),
        ({"bytes": 11}, "run `make op`"),  # truncated: to load it would end the process
        ({}, r"op\.so cannot be loaded .*run `make op` again"),
    ],
)
def test_libraries_that_do_not_fit(elsewhere, changes, message):
    (elsewhere / "op.so").write_bytes(b"no library")
    facts = {"tensorflow": tf.__version__, "cuda": [], "bytes": 10, **changes}
    (elsewhere / "op.json").write_text(json.dumps(facts))
    with pytest.raises(ops.LibraryMissing, match=message):
        ops.library()
    chosen, note = choose_dot("dot_custom", "CPU")
    assert chosen == "dot_tensorflow" and re.search(message, note)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"tensorflow": 3}'])
def test_damaged_description(elsewhere, text):
    (elsewhere / "op.so").write_bytes(b"")
    (elsewhere / "op.json").write_text(text)
    with pytest.raises(ops.LibraryMissing, match="run `make op`"):
        ops.library()


def test_gpu_kernels_without_gpu():
    with pytest.raises(
        ValueError, match=r"dot_custom_cuda needs .* there is no GPU; .*--interaction dot"
    ):
        choose_dot("dot_custom_cuda", "CPU")


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU, as far as the choice looks: what the op does there is a parameter."""

    def set_up(cuda, failure=None):
        monkeypatch.setattr(ops, "build", lambda: {"tensorflow": tf.__version__, "cuda": cuda})

        def run(input, bottom):
            if failure is not None:
                raise tf.errors.InternalError(None, None, failure)
            return input

        monkeypatch.setattr(ops, "dot_based_interact", run)

    return set_up


def test_choice_with_gpu(gpu):
    gpu(["90"])
    for wanted in ("dot", "dot_custom", "dot_custom_cuda"):
        assert choose_dot(wanted, "GPU") == ("dot_custom", None)


@pytest.mark.parametrize(
    ("cuda", "failure", "reason"),
    [
        ([], None, "the op was built without GPU kernels: run `make op CUDA=1`"),
        (["90"], "DotBasedInteract: no kernel image", r"do not run here \(.*no kernel image\)"),
    ],
)
def test_gpu_without_kernels(gpu, cuda, failure, reason):
    gpu(cuda, failure)
    for wanted in ("dot", "dot_custom"):
        chosen, note = choose_dot(wanted, "GPU")
        assert chosen == "dot_tensorflow"
        assert re.search(reason, note)
    with pytest.raises(ValueError, match=reason):
        choose_dot("dot_custom_cuda", "GPU")


def test_unknown_implementation_of_layer():
    for name in ("dot", "dot_custom_cuda", "cross"):
        with pytest.raises(ValueError, match=f"'{name}'.*DotImplementation"):
            DotInteraction(name)
