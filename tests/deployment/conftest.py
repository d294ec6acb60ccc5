"""Models that the tests of deployment share, each trained once in a session."""

import os
import sys

import pytest

from tests.deployment import trained

# Disables telemetry as deployment/serving does, because a test may import these libraries first:
# they would write to the home folder of the user and send reports to their vendors.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules.setdefault("openvino_telemetry", None)


@pytest.fixture(scope="session")
def trained_dlrm(tmp_path_factory) -> trained.TrainedFixture:
    """DLRM with numerical features, four tables and a feature of hotness 3."""
    return trained.train_dlrm(tmp_path_factory.mktemp("dlrm"))


@pytest.fixture(scope="session")
def trained_dcnv2(tmp_path_factory) -> trained.TrainedFixture:
    """DCNv2 on the same rows, with tables of other widths."""
    return trained.train_dcnv2(tmp_path_factory.mktemp("dcnv2"), "--embedding_dim=4,8,4,16")


@pytest.fixture(scope="session")
def trained_sim(tmp_path_factory) -> trained.TrainedFixture:
    """SIM with soft search."""
    return trained.train_sim(tmp_path_factory.mktemp("sim"))


@pytest.fixture(scope="session")
def trained_ncf(tmp_path_factory) -> trained.TrainedFixture:
    """NeuMF."""
    return trained.train_ncf(tmp_path_factory.mktemp("ncf"))


@pytest.fixture(scope="session")
def trained_of_texts(tmp_path_factory) -> trained.TrainedFixture:
    """DLRM whose ids come from a vocabulary and a hash."""
    return trained.train_dlrm_of_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def ncf_of_ratings(tmp_path_factory) -> trained.TrainedFixture:
    """NeuMF of a data set with an encoder."""
    return trained.train_ncf_of_ratings(tmp_path_factory.mktemp("ratings"))


@pytest.fixture(scope="session")
def sim_of_events(tmp_path_factory) -> trained.TrainedFixture:
    """SIM of a data set with an encoder."""
    return trained.train_sim_of_events(tmp_path_factory.mktemp("events"))
