"""`--mlflow_uri`: the tracked runs are read back from MLflow's own database."""

import json
import sys

import pytest

import dlrm
from runtime.logs.run_logger import RunLogger

FLAGS = [
    *("--dataset_type=synthetic", "--synthetic_dataset_train_batches=12", "--batch_size=64"),
    *("--synthetic_dataset_valid_batches=1", "--synthetic_dataset_cardinalities=100,7"),
    *("--bottom_mlp_dims=16,8", "--embedding_dim=8", "--top_mlp_dims=8,1", "--print_freq=1"),
    "--epochs=1",
]
REASON = "needs the package mlflow, which is optional (pip install mlflow)"


@pytest.fixture
def mlflow_client():
    return pytest.importorskip("mlflow", reason=REASON).tracking.MlflowClient


def test_tracked_training(mlflow_client, tmp_path):
    """Parameters and metrics are those of the log."""
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    flags = [*FLAGS, f"--run_dir={tmp_path / 'first'}", f"--mlflow_uri={uri}"]
    assert dlrm.main(["x", *flags]) == 0
    client = mlflow_client(tracking_uri=uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "dlrm"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    lines = (tmp_path / "first/log.json").read_text().splitlines()
    log = [json.loads(line.removeprefix("DLLL ")) for line in lines]
    assert run.data.params == {name: str(value) for name, value in parameters(log).items()}
    losses = [
        (line["step"][1], line["data"]["loss"]) for line in log if "loss" in line.get("data", {})
    ]
    tracked = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((metric.step, metric.value) for metric in tracked) == losses and len(losses) == 12
    for name, value in log[-1]["data"].items():
        assert run.data.metrics[name] == pytest.approx(value)


def parameters(log):
    """Returns the parameters of a log, with tuples in place of the lists of JSON."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in log[0]["data"].items()}


class Tracker:
    """In place of `MLflowRun`: keeps what it gets, and fails at step 2."""

    def __init__(self):
        self.written, self.ends = [], []

    def write(self, step, values):
        self.written.append((step, dict(values)))
        return "note: the tracking by MLflow ends: gone" if step == 2 else None

    def close(self, has_failed):
        self.ends.append(has_failed)


def test_tracked_values(tmp_path, capsys):
    """Values of steps and of the summary; a failure is a note, and the run goes to its end."""
    tracker = Tracker()
    with RunLogger(tmp_path / "log.json", {}, mlflow_run=tracker) as log:
        log.log(1, {"loss": 0.5, "text": "x"}, epoch=0)
        log.log(2, {"loss": 0.4}, epoch=0)
        log.summary({"auc": 0.75})
        log.close()
    assert tracker.written == [(1, {"loss": 0.5}), (2, {"loss": 0.4}), (2, {"auc": 0.75})]
    assert tracker.ends == [False]
    assert "the tracking by MLflow ends: gone" in capsys.readouterr().out


def test_status_of_a_failed_run(tmp_path):
    tracker = Tracker()
    with pytest.raises(OSError), RunLogger(tmp_path / "log.json", {}, mlflow_run=tracker):
        raise OSError
    assert tracker.ends == [True]


def test_absent_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    assert dlrm.main(["x", *FLAGS, f"--run_dir={tmp_path}", "--mlflow_uri=sqlite:///x.db"]) == 2
    error = capsys.readouterr().err
    assert "--mlflow_uri needs the package mlflow, which is not installed: install it" in error


def test_unreachable_server(tmp_path, mlflow_client, capsys):
    flags = [*FLAGS, f"--run_dir={tmp_path}", "--mlflow_uri=http://127.0.0.1:9"]
    assert dlrm.main(["x", *flags]) == 2
    assert "--mlflow_uri http://127.0.0.1:9: cannot be used: " in capsys.readouterr().err
