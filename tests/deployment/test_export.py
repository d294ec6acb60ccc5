"""`python -m deployment.export`: a model of any recipe without a server."""

import contextlib
import signal

import numpy as np
import tensorflow as tf

from dataloading.spec.feature_spec import FeatureSpec
from deployment import export
from deployment.model.trained_model import open_checkpoint
from preproc.encoding.encoder import Encoder


def run(model, output, *flags):
    """Exit status of the tool."""
    return export.main([f"--checkpoint_dir={model.checkpoint}", f"--output={output}", *flags])


def test_saved_model_of_ncf(trained_ncf, tmp_path, capsys):
    output = tmp_path / "served"
    flags = ["--format=savedmodel", f"--dataset_path={trained_ncf.data}"]
    assert run(trained_ncf, output, *flags) == 0
    message = capsys.readouterr().out
    assert "; output: scores float32 [batch, 1]" in message
    assert f"written: {output}, " in message and "bytes with tables in float32" in message
    serve = tf.saved_model.load(str(output)).signatures["serving_default"]
    arrays = {name: tf.constant(values) for name, values in trained_ncf.requests()[0].items()}
    result = serve(**arrays)["scores"].numpy()
    np.testing.assert_allclose(result[:, 0], trained_ncf.scores(tmp_path), atol=1e-6)


def test_invalid_requests(trained_dlrm, tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert run(trained_dlrm, tmp_path) == 2
    assert "error: " in (message := capsys.readouterr().err) and "is not an empty folder" in message
    assert run(trained_dlrm, tmp_path / "new", "--dataset_path=elsewhere") == 2
    assert "elsewhere" in capsys.readouterr().err
    nothing = trained_dlrm._replace(checkpoint=tmp_path / "nothing")
    assert run(nothing, tmp_path / "new") == 2
    assert "the folder does not exist" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]
    assert run(trained_dlrm, tmp_path / "new", "--format=onnx") == 2
    error = capsys.readouterr().err
    assert "--format" in error and "savedmodel" in error


def test_sigterm(trained_dlrm, tmp_path, monkeypatch, capsys):
    """Leaves no file, also where a library catches the interrupt and continues."""
    from deployment.artifacts import saved_models

    def stopped(*model, quantize):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(saved_models, "write_monolithic", stopped)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run(trained_dlrm, tmp_path / "new") == 130
    finally:
        assert signal.signal(signal.SIGTERM, before) == before
    assert capsys.readouterr().err == "interrupted; nothing was written under --output\n"
    assert not [*tmp_path.iterdir()]


def test_encoder_next_to_the_model(trained_of_texts, tmp_path, capsys):
    """It encodes requests of the SavedModel as those of the checkpoint."""
    output = tmp_path / "served"
    assert run(trained_of_texts, output, "--quantize_tables=int8") == 0
    assert "bytes with tables in int8" in capsys.readouterr().out
    encoder = Encoder.load(output / "assets.extra/encoder")
    trained = open_checkpoint(str(trained_of_texts.checkpoint))
    assert encoder.digest == trained.encoder.digest and encoder.profile == trained.encoder.profile
    assert FeatureSpec.from_yaml(output / "assets.extra/feature_spec.yaml") == trained.spec
