"""Recipes of one's own: the programs of the pages that add a model and a metric, trained, evaluated
and served."""

import dataclasses
import importlib
import json
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World
from embedding_testing.fake_world import run_threads

import main
import recipes
from config.flag import Rules
from dataloading.pipeline.batch import Inputs
from dataloading.spec.feature_spec import FeatureSpec
from deployment.client.evaluation_requests import labelled_requests
from deployment.deploy import __main__ as deploy
from deployment.model.served_model import interface_of
from deployment.model.trained_model import evaluation_rows, open_checkpoint
from deployment.predict import __main__ as predict
from recipes.baseline import __main__ as baseline
from recipes.ranking.flags import RankingFlags
from recipes.registry import BY_NAME, definition_of, path_of
from recipes.search import __main__ as search
from tests.recipes.test_entry_scripts import summary

PAGES = Path(__file__).parents[2] / "docs/how_to"
OWN = "wide_deep:WIDE_DEEP"
SMALL = ("--batch_size=512", "--embedding_dim=4", "--top_mlp_dims=16,1", "--epochs=1", "--seed=1")


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory):
    """Saves the programs of both pages where modules are found."""
    folder = tmp_path_factory.mktemp("programs")
    for page in ("add_a_model.md", "add_a_metric.md"):
        text = (PAGES / page).read_text()
        pattern = r"^Save this as `(\w+\.py)`.*?^```python\n(.*?)^```"
        ((name, program),) = re.findall(pattern, text, re.M | re.S)
        (folder / name).write_text(program)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def started(*flags):
    return main.main(["main.py", f"--model={OWN}", *SMALL, *map(str, flags)])


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    flags = (f"--dataset_path={rows}", f"--save_checkpoint_path={folder / 'model'}")
    assert started(*flags, f"--run_dir={folder / 'run'}") == 0
    return rows, folder / "model"


def restored(trained, tmp_path, mode, *flags):
    places = [f"--dataset_path={trained[0]}", f"--restore_checkpoint_path={trained[1]}"]
    run_dir = tmp_path / mode
    assert started(f"--mode={mode}", *places, f"--run_dir={run_dir}", *flags) == 0
    return summary(run_dir)


def test_served_scores(trained, tmp_path, capsys):
    """Equal scores of --mode predict and of the deployed model."""
    restored(trained, tmp_path, "predict", f"--predictions_path={tmp_path / 'scores.npy'}")
    expected = np.load(tmp_path / "scores.npy")
    arguments = [f"--recipe={OWN}", f"--checkpoint_dir={trained[1]}"]
    for ensemble in ([], ["--monolithic"]):
        repository = tmp_path / f"repository{len(ensemble)}"
        assert deploy.main([*arguments, f"--model_repository={repository}", *ensemble]) == 0
    served = tmp_path / "served.npy"
    flags = [f"--model={repository}", f"--input={trained[0]}", "--mapping=test"]
    assert predict.main([*flags, f"--output={served}"]) == 0
    np.testing.assert_allclose(np.load(served), expected, rtol=1e-5)
    described = open_checkpoint(str(trained[1]), recipe=OWN)
    first = next(labelled_requests(described, evaluation_rows(described, 100)))
    assert {name: array.shape for name, array in first.arrays.items()} == {
        tensor.name: (100, *tensor.dims) for tensor in interface_of(described).inputs
    }
    model = recipes.load_model(trained[1], recipe=OWN)
    assert model.recipe == "wide_deep"
    spec = FeatureSpec.from_yaml(trained[0] / "feature_spec.yaml")
    assert set(model.features) == {*spec.channel("numerical"), *spec.channel("categorical")}


def test_evaluation_and_baseline(trained, tmp_path, capsys):
    auc = restored(trained, tmp_path, "eval")["auc"]
    assert "tables 10 " in capsys.readouterr().out  # two for each feature
    flags = ["--dataset_path", trained[0], "--checkpoint_path", trained[1], "--recipe", OWN]
    assert baseline.main([*map(str, flags), "--output", str(tmp_path / "baseline")]) == 0
    rows = json.loads((tmp_path / "baseline/baseline.json").read_text())
    assert f"{auc:.5f}"[:6] in json.dumps(rows)


def test_unread_flags(trained, tmp_path, capsys):
    restored(trained, tmp_path, "eval", "--bottom_mlp_dims=8", "--interaction=cross")
    (note,) = re.findall("not used in this run .*", capsys.readouterr().out)
    assert "--bottom_mlp_dims" in note and "--interaction" in note
    assert "--top_mlp_dims" not in note and "--embedding_dim" not in note


def test_checkpoint_of_an_unnamed_recipe(trained):
    with pytest.raises(ValueError, match="of the recipe wide_deep, .* pass --recipe module:NAME"):
        recipes.load_model(trained[1])
    with pytest.raises(ValueError, match="of the recipe wide_deep, and --recipe is dlrm"):
        recipes.load_model(trained[1], recipe="dlrm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deepfm", "expected one of dlrm, .*, or module:NAME of its Definition, got 'deepfm'"),
        ("wide_deep:Wide", "the module wide_deep has no Definition of this name"),
        ("no_such_module:X", "No module named 'no_such_module'"),
    ],
)
def test_unknown_recipes(text, message):
    with pytest.raises(ValueError, match=message):
        definition_of(text)


def test_path_of_a_definition():
    assert path_of(definition_of(OWN)) == OWN
    assert path_of(recipes.DLRM) == "dlrm"
    with pytest.raises(ValueError, match="a global variable of a module"):
        path_of(recipes.Definition("lost", recipes.RANKING))


def test_search(rows, tmp_path, capfd):
    arguments = [OWN, "--study=own", f"--storage={tmp_path / 'own.db'}", "--trials=1"]
    arguments += ["--param", "learning_rate=log:1e-3..1e-2", "--", f"--dataset_path={rows}"]
    assert search.main([*arguments, *SMALL]) == 0
    assert "best: trial 0, validation " in capfd.readouterr().out


def ndcg_of_users(users, labels, logits):
    """Returns the mean of NDCG@5 over users with a click, user by user."""
    values = []
    for user in np.unique(users):
        own = users == user
        order = np.argsort(-logits[own])
        gains = labels[own][order] / np.log2(np.arange(own.sum()) + 2)
        ideal = np.sort(labels[own])[::-1] / np.log2(np.arange(own.sum()) + 2)
        if labels[own].any():
            values.append(gains[:5].sum() / ideal[:5].sum())
    return np.mean(values)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_metric_on_ranks(size):
    make = importlib.import_module("user_ndcg").UserNDCG
    rng = np.random.default_rng(0)
    users, labels = rng.integers(40, size=600), (rng.random(600) < 0.3).astype(np.float32)
    logits = rng.permutation(600).astype(np.float32)
    weights = rng.choice([0, 1], 600)

    class Spec:
        def channel(self, name):
            return ["cat_0"]

    def run(world):
        metric = make(Spec())
        metric.start(world)
        for part in np.array_split(np.arange(world.rank, 600, size), 3):
            metric.add(*(tf.constant(c[part, None]) for c in (users, labels, logits, weights)))
        return metric.result()

    real = weights > 0
    expected = ndcg_of_users(users[real], labels[real], logits[real])
    for result in run_threads(size, run):
        assert result == {"user_ndcg@5": pytest.approx(expected, abs=1e-14)}


def test_metric_over_all_samples():
    """The group of the page makes all samples of the ranks one group."""
    program = re.findall(
        r"^```python\n(    .*?)^```", (PAGES / "add_a_metric.md").read_text(), re.M | re.S
    )
    functions = {"tf": tf}
    exec(textwrap.dedent(program[0]), functions)

    class Recall(recipes.Metric):
        names = ("recall",)
        group_of = functions["group_of"]

        def sums(self, groups, labels, logits):
            best = np.argsort(-logits)[: len(logits) // 10]
            return {"recall": (labels[best].sum(), labels.sum())}

    logits, labels = np.arange(100.0), np.arange(100) % 3 == 0

    def run(world):
        metric, own = Recall(), slice(world.rank * 50, world.rank * 50 + 50)
        metric.start(world)
        groups = metric.group_of(Inputs(tf.zeros([50, 0]), ()))
        metric.add(groups, labels[own], logits[own], np.ones(50))
        return metric.result()

    assert run_threads(2, run) == [{"recall": pytest.approx(labels[90:].sum() / labels.sum())}] * 2


def test_metric_without_a_value():
    class Broken(recipes.Metric):
        names = ("recall", "precision")

        def sums(self, groups, labels, logits):
            return {"recal": (1.0, 1.0)}

    metric = Broken()
    metric.start(World())
    metric.add(None, [1.0], [0.5], [1.0])
    with pytest.raises(ValueError, match=r"Broken.sums: expected .* recall, precision .* recal"):
        metric.result()


def test_metric_of_a_training(rows, tmp_path):
    result = recipes.train(
        "user_ndcg:DLRM",
        dataset_path=rows,
        run_dir=tmp_path,
        metric="user_ndcg@5",
        epochs=1,
        batch_size=512,
        embedding_dim=8,
        bottom_mlp_dims=(16, 8),
        top_mlp_dims=(16, 1),
        seed=1,
        group_column="cat_0",
        group_cutoffs=(5,),
    )
    assert result.metrics["user_ndcg@5"] == result.metrics["best_user_ndcg@5"] > 0


@dataclasses.dataclass(frozen=True)
class ToySize:
    """A flag of the toy alone."""

    toy_size: int = Rules(at_least=1).flag(3, "size of the toy")


@dataclasses.dataclass(frozen=True)
class ToyFlags(RankingFlags, ToySize):
    """Toy."""


def test_family_without_a_script(monkeypatch, capsys):
    """A family is an object and a name in the registry: with flags of its own, without a script."""
    family = dataclasses.replace(recipes.RANKING, section=ToyFlags, baseline=None, serving=None)
    monkeypatch.setitem(BY_NAME, "toy", recipes.Definition("toy", family))
    assert main.main(["main.py", "--model=toy", "--helpfull"]) == 0
    assert "Toy:\n  --toy_size                      size of the toy (default: 3)" in (
        capsys.readouterr().out
    )
    flags = ("--dataset_type=synthetic", "--plan_only", "--toy_size")
    assert main.main(["main.py", "--model=toy", *flags, "5"]) == 0
    assert main.main(["main.py", "--model=toy", *flags, "0"]) == main.USER_ERROR
    assert "--toy_size: expected at least 1, got 0" in capsys.readouterr().err


def with_layer(monkeypatch, **create):
    """Makes WideDeep add an own layer without a seed to its logits, whose weights exist if
    `create` has the shape of its input."""
    module = importlib.import_module("wide_deep")

    class Own(module.WideDeep):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.own = tf.keras.layers.Dense(1, name="own")
            if create:
                self.own.build(create["shape"])

        def call(self, inputs, training=False, weights=None):
            logits = super().call(inputs, training, weights)
            return logits + tf.cast(self.own(logits), tf.float32)

    monkeypatch.setattr(module, "WideDeep", Own)


def test_weights_of_the_first_step(rows, monkeypatch, tmp_path, capsys):
    with_layer(monkeypatch)
    run = (f"--dataset_path={rows}", f"--run_dir={tmp_path}")
    assert started(*run) == main.USER_ERROR
    error = capsys.readouterr().err
    assert "wide_deep: expected all weights before the first step, got new ones" in error
    assert "own/kernel" in error


def test_initializers_without_a_seed(rows, monkeypatch, tmp_path):
    with_layer(monkeypatch, shape=[None, 1])
    losses = []
    for run in ("first", "second"):
        assert started(f"--dataset_path={rows}", f"--run_dir={tmp_path / run}") == 0
        losses.append(summary(tmp_path / run)["log_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
