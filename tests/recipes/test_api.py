"""Python API: `recipes.train`, `evaluate`, `predict` and `load_model`."""

import signal
import threading

import numpy as np
import pyarrow.parquet
import pytest

import recipes
from config.family import Definition
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from recipes.registry import DLRM
from tests import sequence_data, tastes
from tests.recipes.test_entry_scripts import lines, summary
from training.errors import TrainingDiverged

SMALL = {
    "batch_size": 512,
    "embedding_dim": 8,
    "bottom_mlp_dims": (16, 8),
    "top_mlp_dims": [16, 1],
    "print_freq": 1,
    "seed": 3,
}
OF_SIM = {"model_type": "din", "embedding_dim": 8, "epochs": 1, "batch_size": 32}
OF_SIM |= {"affinity": "disabled"}
OTHER = {**SMALL, "learning_rate": 0.01, "shuffle": False, "epochs": 1}


def losses(run_dir):
    log = lines(run_dir / "log.json")
    values = [line["data"]["loss"] for line in log if "loss" in line.get("data", {})]
    assert len(values) >= 11
    return values


def command_line(flags):
    joined = {
        k: ",".join(map(str, v)) if isinstance(v, tuple | list) else v for k, v in flags.items()
    }
    return [f"--{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in joined.items()]


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("trained")
    return recipes.train("dlrm", dataset_path=rows, run_dir=run_dir, epochs=2, **SMALL)


def test_two_trainings_in_a_process(rows, tmp_path, run_script, trained):
    """The second one has the losses of a process of its own, whatever flags the first one has."""
    result = recipes.train("dcnv2", dataset_path=rows, run_dir=tmp_path / "a", **OTHER)
    command = ["dcnv2.py", *command_line(OTHER), f"--dataset_path={rows}"]
    done = run_script(*command, f"--run_dir={tmp_path / 'b'}")
    assert done.returncode == 0, done.stderr
    assert losses(result.run_dir) == losses(tmp_path / "b") != losses(trained.run_dir)


def test_result_of_a_training(trained):
    assert trained.metrics == summary(trained.run_dir)
    assert trained.metrics["steps"] == 22
    assert trained.checkpoint == trained.run_dir / "checkpoints"
    names = sorted(saved.name for saved in trained.checkpoint.glob("0*"))
    assert names == ["00001-step-11", "00002-step-22"], "the newest two; `best` is one of them"
    assert [plot.name for plot in trained.plots] == ["learning_curve.png", "roc.png"]
    assert all(plot.is_file() for plot in trained.plots)


def test_names_of_sim(tmp_path):
    """Aliases are names of flags, and metrics have the names of the log."""
    sequence_data.write(tmp_path / "rows", 64)
    flags = {"dataset_dir": tmp_path / "rows", "results_dir": tmp_path / "run", "lr": 0.01}
    result = recipes.train("sim", **flags, **OF_SIM)
    assert {"test_auc", "train_auc", "time_to_train"} <= result.metrics.keys()
    assert result.checkpoint == tmp_path / "run/checkpoints"
    model = recipes.load_model(result.checkpoint)
    assert {"user_id", "item_id_trgt"} <= set(model.features)
    flags = {"dataset_dir": tmp_path / "rows", "results_dir": tmp_path / "run"}
    scores = recipes.predict("sim", load_checkpoint_path=result.checkpoint, **flags)
    assert len(scores) > 0 and 0 < scores.min() < scores.max() < 1


def test_evaluation(trained, rows, tmp_path):
    flags = {"dataset_path": rows, "restore_checkpoint_path": trained.checkpoint}
    result = recipes.evaluate("dlrm", **flags, run_dir=tmp_path, eval_mapping="validation")
    assert result.metrics["auc"] == pytest.approx(trained.metrics["auc"], abs=1e-6)
    assert [plot.name for plot in result.plots] == ["roc.png"]
    assert result.checkpoint == trained.checkpoint / "best"


@pytest.mark.quick("None", "parquet")
@pytest.mark.parametrize("suffix", [None, "npy", "csv", "parquet"])
def test_scores(trained, rows, tmp_path, suffix, capsys):
    """The file, if one is named, has the scores that are returned."""
    path = None if suffix is None else tmp_path / f"scores.{suffix}"
    flags = {"dataset_path": rows, "restore_checkpoint_path": trained.checkpoint}
    flags |= {"eval_mapping": "validation", "run_dir": tmp_path}
    scores = recipes.predict("dlrm", **flags, predictions_path=path)
    assert ("scores.npy" in capsys.readouterr().out) == (suffix == "npy")
    model, expected = recipes.load_model(trained.checkpoint), []
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    for batch in StoredDataset(spec, "validation", batch_size=400).dataset():
        expected.append(model(batch)[batch.weights.numpy()[:, 0] > 0])
    assert scores.dtype == np.float32 and scores.shape == (1001,)
    np.testing.assert_allclose(scores, np.concatenate(expected), atol=1e-6)
    if suffix == "parquet":
        assert pyarrow.parquet.read_table(path)["score"].to_pylist() == scores.tolist()


def test_scores_of_named_features(trained, rows):
    model = recipes.load_model(trained.checkpoint, rows)
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    batch = next(iter(StoredDataset(spec, "validation", batch_size=7).dataset()))
    names = spec.channel("numerical"), spec.channel("categorical")
    assert model.features == (*names[0], *names[1])
    values = dict(zip(names[0], np.asarray(batch.inputs.numerical).T, strict=True))
    values |= dict(zip(names[1], map(np.asarray, batch.inputs.categorical), strict=True))
    np.testing.assert_allclose(model(values), model(batch), rtol=1e-6)
    np.testing.assert_allclose(model(batch.inputs), model(batch), rtol=1e-6)
    first = names[1][0]
    for wrong, message in (
        ([1, 2], "expected a dictionary .*, got a list"),
        ({k: v for k, v in values.items() if k != first}, f"missing feature '{first}'"),
        ({**values, "x": 1}, "unknown feature 'x'"),
        ({**values, first: np.full(7, 1000)}, "ids from 0 to 999, got 1000 to 1000"),
        ({**values, first: np.full(7, 0.5)}, "integer ids, got float64"),
        ({**values, first: np.zeros((7, 2), int)}, "1 values per sample"),
        ({**values, names[0][0]: np.full(7, np.nan)}, "finite numbers"),
        ({**values, first: np.zeros(6, int)}, r"equally many samples .*\[6, 7\]"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
    with pytest.raises(ValueError, match="expected the path of a checkpoint"):
        recipes.load_model(None)


def test_scores_of_interactions(tmp_path):
    tastes.write(tmp_path / "rows")
    flags = {"data": tmp_path / "rows", "run_dir": tmp_path / "run", "epochs": 1, "topk": 3}
    result = recipes.train("ncf", **flags, checkpoint_dir=tmp_path / "c", layers=[16, 8])
    assert result.checkpoint == tmp_path / "c" and "hr@3" in result.metrics
    model = recipes.load_model(tmp_path / "c")
    user, item = model.features
    scores = model({user: [0, 0, 1], item: [0, 1, 0]})
    assert scores.shape == (3,) and len(set(scores.tolist())) == 3


def test_errors(rows, tmp_path):
    """They are those of the command line, and the folder of a run that did not begin is removed."""
    folder = tmp_path / "run"
    for flags, message in (
        ({"batch_sise": 1}, "'batch_sise'. Did you mean: batch_size"),
        ({"batch_size": "x"}, "invalid literal"),
        ({"epochs": True}, "invalid literal"),
        ({"batch_size": 0}, "--batch_size: expected at least 1, got 0"),
        ({"mode": "eval"}, "mode='eval'"),
        ({"plan_only": True}, "--plan_only is of the command line"),
        ({"dataset_path": tmp_path}, "feature_spec.yaml"),
    ):
        with pytest.raises(ValueError, match=message):
            recipes.train("dlrm", **{"dataset_path": rows, "run_dir": folder, **flags})
    assert not folder.exists()
    with pytest.raises(ValueError, match="dlrm, dcnv2, sim, ncf, or module:NAME .*, got 'x'"):
        recipes.train("x")
    with pytest.raises(ValueError, match="--mode eval needs a trained model"):
        recipes.evaluate("dlrm", dataset_path=rows)
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        recipes.fit  # noqa: B018
    with pytest.raises(TrainingDiverged, match="Try a smaller --learning_rate"):
        recipes.train("dlrm", dataset_path=rows, run_dir=folder, **SMALL, learning_rate=1e30)


def test_own_recipe(rows, tmp_path):
    """Another recipe is a definition; keep_best applies to checkpoints in the folder of the run."""
    own = Definition("own", DLRM.family, {"embedding_dim": "8"}, build=DLRM.family.build)
    flags = {k: v for k, v in SMALL.items() if k != "embedding_dim"}
    result = recipes.train(
        own, dataset_path=rows, run_dir=tmp_path, preset="terabyte", keep_best=True, **flags,
        learning_rate=0.1, max_steps=5,
    )  # fmt: skip
    assert result.metrics["steps"] == 5
    assert (result.checkpoint / "best").is_dir()
    log = (tmp_path / "log.json").read_text()
    assert '"recipe": "own"' in log and '"embedding_dim": "8"' in log


def test_signals(rows, tmp_path, monkeypatch):
    """The API installs no handler: it also works outside the main thread, where none can be."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    installed, results = [], []
    monkeypatch.setattr(signal, "signal", lambda *args: installed.append(args))

    def train():
        flags = {"dataset_path": rows, "run_dir": tmp_path, "max_steps": 3, **SMALL}
        results.append(recipes.train("dlrm", **flags))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert results[0].metrics["steps"] == 3
    assert installed == []
    assert before == {number: signal.getsignal(number) for number in before}
