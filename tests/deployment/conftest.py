"""Models that the tests of deployment share, each trained once in a session, by one worker."""

import fcntl
import os
import sys

import pytest

import dcnv2
import dlrm
import ncf
import sim
from tests.deployment import trained
from tests.deployment.serving.made_models import write_clicks

# Disables telemetry as deployment/serving does, because a test may import these libraries first:
# they would write to the home folder of the user and send reports to their vendors.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)


def once(recipe, train):
    """Returns a fixture of a model that `train` trains into an empty folder."""

    @pytest.fixture(scope="session")
    def model(tmp_path_factory) -> trained.TrainedFixture:
        base = tmp_path_factory.getbasetemp()
        base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        folder = base / train.__name__
        with open(base / f"{train.__name__}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                folder.mkdir()
                train(folder)
        return trained.TrainedFixture(recipe, folder / "data", folder / "checkpoint")

    return model


trained_dlrm = once(dlrm, trained.train_dlrm)
trained_dcnv2 = once(dcnv2, trained.train_dcnv2)
trained_sim = once(sim, trained.train_din)
trained_ncf = once(ncf, trained.train_ncf)
trained_of_texts = once(dlrm, trained.train_dlrm_of_texts)
ncf_of_ratings = once(ncf, trained.train_ncf_of_ratings)
sim_of_events = once(sim, trained.train_sim_of_events)


@pytest.fixture(scope="session")
def clicks(tmp_path_factory):
    """The version folder of the model `clicks`, made by hand."""
    return write_clicks(tmp_path_factory.mktemp("repository") / "clicks/1")
