"""Variables of TensorFlow."""

import os
import platform

import pytest

from runtime.tensorflow_start import prepare_tensorflow


@pytest.mark.parametrize("name", ["TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"])
def test_variables(monkeypatch, name):
    if name == "TF_ENABLE_ONEDNN_OPTS" and platform.machine() != "x86_64":
        pytest.skip("oneDNN is left alone elsewhere")
    monkeypatch.delenv(name, raising=False)
    prepare_tensorflow()
    assert os.environ[name] == {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"}[name]
    monkeypatch.setenv(name, "0")
    prepare_tensorflow()
    assert os.environ[name] == "0"
