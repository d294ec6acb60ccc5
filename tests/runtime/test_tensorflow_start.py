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


@pytest.mark.parametrize("fails", [False, True])
def test_import(tmp_path, run_script, fails):
    """The log of an import is shown only if it fails."""
    module = "import os; os.write(2, b'noise\\n')" + ("; raise ImportError('no library')" * fails)
    (tmp_path / "tensorflow.py").write_text(module)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from runtime.tensorflow_start import import_tensorflow; import_tensorflow()"
    )
    done = run_script("-c", program)
    assert ("noise" in done.stderr) == ("no library" in done.stderr) == fails
