"""The peer of `benchmarks.serving`, a plain SavedModel, answers the scores of our deployment."""

import os

import numpy as np
import pytest

from benchmarks import serving
from deployment.client.client import Client
from deployment.client.drawn_requests import drawn_request
from deployment.deploy.deploy_options import LocalOptions
from deployment.deploy.deployer import deploy
from deployment.model.served_model import interface_of
from deployment.model.trained_model import open_checkpoint
from deployment.serve.server import running
from deployment.serve.serving_environment import ENVIRONMENT


@pytest.mark.skipif(not (ENVIRONMENT / "installed").exists(), reason="run `make serve-setup`")
@pytest.mark.skipif(" " in os.getcwd(), reason="Triton's shell splits the path of .venv")
def test_scores_of_peer(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "CARDINALITIES", (30, 20))
    checkpoint = serving.train("demo", tmp_path)
    trained, repository = open_checkpoint(str(checkpoint)), tmp_path / "repository"
    interface = interface_of(trained)
    deploy(LocalOptions(str(checkpoint), repository, model_name="ours", monolithic=True))
    (repository / "plain").mkdir()
    serving.deploy_plainly(trained, interface.inputs, repository / "plain")
    rows = drawn_request(interface, 50, np.random.default_rng(0))
    scores = {}
    with running(repository, tmp_path / "server.log") as server:
        for name in ("ours", "plain"):
            with Client(server.url, name) as client:
                scores[name] = client.ask(client.prepare(rows, name))
    assert len(set(scores["ours"].ravel())) > 25
    np.testing.assert_allclose(scores["plain"], scores["ours"], rtol=0, atol=1e-6)
