"""`python -m deployment.export`: a model of any recipe without a server."""

import re
import signal

import numpy as np
import pytest
import tensorflow as tf

from deployment import export
from deployment.model.served_model import request_arrays, serving_spec_of
from deployment.model.trained_model import evaluation_rows, open_checkpoint
from deployment.serving.dense import open_session


def run(model, output, kind, *flags):
    """Exit status of the tool."""
    command_line = [
        f"--checkpoint_dir={model.checkpoint}",
        f"--output={output}",
        f"--format={kind}",
    ]
    return export.main([*command_line, *flags])


def requests(model):
    """The rows to evaluate on as one request."""
    trained = open_checkpoint(str(model.checkpoint))
    arrays = [
        request_arrays(serving_spec_of(trained), batch.inputs)
        for batch in evaluation_rows(trained, 1000).dataset()
    ]
    return {name: np.concatenate([a[name] for a in arrays]) for name in arrays[0]}


def test_onnx_of_dcnv2(trained_dcnv2, tmp_path, capsys):
    output = tmp_path / "served"
    assert run(trained_dcnv2, output, "onnx") == 0
    message = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"dcnv2 of .*/checkpoint/00001-step-4", message[0])
    assert re.fullmatch(
        r"the dense part in ONNX: scores within \d\.\de-\d\d of TensorFlow's", message[1]
    )
    assert message[2] == (
        "inputs: numerical_features float32 [batch, 3], categorical_features int64 [batch, 6]; "
        "output: scores float32 [batch, 1]"
    )
    sizes = {file.name: file.stat().st_size for file in output.iterdir()}
    assert sizes.keys() == {"model.onnx", "model.onnx.data"}
    assert message[3:] == [
        f"written: {output}, {sum(sizes.values()):,} bytes with tables in float32"
    ]
    (result,) = open_session(output / "model.onnx").run(["scores"], requests(trained_dcnv2))
    np.testing.assert_allclose(result[:, 0], trained_dcnv2.scores(tmp_path), atol=1e-6)


def test_saved_model_of_ncf(trained_ncf, tmp_path, capsys):
    output = tmp_path / "served"
    assert run(trained_ncf, output, "savedmodel", f"--dataset_path={trained_ncf.data}") == 0
    assert "bytes with tables in float32" in capsys.readouterr().out
    serve = tf.saved_model.load(str(output)).signatures["serving_default"]
    arrays = {name: tf.constant(values) for name, values in requests(trained_ncf).items()}
    result = serve(**arrays)["scores"].numpy()
    np.testing.assert_allclose(result[:, 0], trained_ncf.scores(tmp_path), atol=1e-6)


@pytest.mark.parametrize("kind", ["onnx", "savedmodel"])
def test_quantized_tables(kind, trained_dlrm, tmp_path, capsys):
    """The 40,317 rows of 8 values take one byte per value and four per row in int8."""
    assert run(trained_dlrm, tmp_path / "served", kind, "--quantize_tables=int8") == 0
    message = capsys.readouterr().out
    size_bytes = int(re.search(r"([\d,]+) bytes with tables in int8", message)[1].replace(",", ""))
    assert 40_317 * 12 < size_bytes < 40_317 * 12 + 150_000


def test_invalid_requests(trained_dlrm, tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert run(trained_dlrm, tmp_path, "onnx") == 2
    assert "error: " in (message := capsys.readouterr().err) and "is not an empty folder" in message
    assert run(trained_dlrm, tmp_path / "new", "onnx", "--dataset_path=elsewhere") == 2
    assert "elsewhere" in capsys.readouterr().err
    nothing = trained_dlrm._replace(checkpoint=tmp_path / "nothing")
    assert run(nothing, tmp_path / "new", "onnx") == 2
    assert "the folder does not exist" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]
    with pytest.raises(SystemExit, match="2"):
        run(trained_dlrm, tmp_path / "new", "tensorrt")


def test_failed_export(trained_dlrm, tmp_path, monkeypatch, capsys):
    from deployment.artifacts import onnx_model

    def fails(*model):
        raise ValueError("a score is too far from what TensorFlow computes")

    monkeypatch.setattr(onnx_model, "check_against_tensorflow", fails)
    assert run(trained_dlrm, tmp_path / "new", "onnx") == 2
    assert capsys.readouterr().err == "error: a score is too far from what TensorFlow computes\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("caught", [False, True])
def test_sigterm(caught, trained_dlrm, tmp_path, monkeypatch, capsys):
    """Leaves no file, also where a library catches the interrupt and continues."""
    from deployment.artifacts import onnx_model

    def stopped(*model):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            if not caught:
                raise
        return 0.0

    monkeypatch.setattr(onnx_model, "check_against_tensorflow", stopped)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run(trained_dlrm, tmp_path / "new", "onnx") == 130
    finally:
        assert signal.signal(signal.SIGTERM, before) == before
    assert capsys.readouterr().err == "interrupted; nothing was written under --output\n"
    assert not [*tmp_path.iterdir()]
