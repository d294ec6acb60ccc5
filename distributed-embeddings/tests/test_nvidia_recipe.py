"""NVIDIA's TF2 recipe trains on this package.

The recipe is TensorFlow2/Recommendation/DLRM_and_DCNv2 of NVIDIA's DeepLearningExamples, at its
last commit. It is not part of this repository: the environment variable NVIDIA_RECIPE names a
folder with its files, without it these tests are skipped.

    NVIDIA_RECIPE=~/DLRM_and_DCNv2 python -m pytest tests/test_nvidia_recipe.py

Its code runs unchanged, but for the device to which its reader of raw data prefetches: CPU 0
instead of GPU 0. Python's `random` is seeded before it starts. `dllogger` and `tensorflow_addons`,
which `main.py` imports, are replaced by modules of a few lines where they are not installed;
therefore the optimizer is SGD.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

RECIPE = os.environ.get("NVIDIA_RECIPE")
pytestmark = pytest.mark.skipif(
    not RECIPE, reason="NVIDIA_RECIPE does not name a folder with NVIDIA's recipe"
)

BATCH, TRAIN_BATCHES, TEST_BATCHES = 128, 100, 8
ROWS = [100, 50, 400, 30, 7]
NUMERICAL = 3
# Cases by name: number of ranks, and their flags. All train from new weights: the recipe does not
# restore a checkpoint with data-parallel input on 2 ranks, `Model.force_initialization` gives the
# layer the ids of all ranks' samples.
CASES: dict[str, tuple[int, list[str]]] = {
    "1 rank, model-parallel input": (1, []),
    "1 rank, data-parallel input": (1, ["--data_parallel_input"]),
    "2 ranks, model-parallel input": (2, []),
    "2 ranks, model-parallel input, column slices": (2, ["--column_slice_threshold=1000"]),
    "2 ranks, data-parallel input": (2, ["--data_parallel_input"]),
    "2 ranks, data-parallel input, every placement": (
        2,
        [
            "--data_parallel_input",
            "--data_parallel_threshold=100",
            "--column_slice_threshold=500",
            "--row_slice_threshold=2000",
        ],
    ),
}
REFERENCE = next(iter(CASES))

DLLOGGER = """
import collections
import json
from types import SimpleNamespace

Verbosity = SimpleNamespace(OFF=-1, DEFAULT=0, VERBOSE=1)
active = []


def init(backends):
    active.extend(backends)


class JSONStreamBackend:
    def __init__(self, verbosity, filename):
        self.file = open(filename, "w")

    def log(self, step, data):
        print("DLLL " + json.dumps({"step": step, "data": data}), file=self.file, flush=True)


class StdOutBackend:
    def __init__(self, verbosity):
        self._metadata = collections.defaultdict(dict)

    def log(self, step, data):
        print(step, data)


def log(step, data):
    for backend in active:
        backend.log(step, data)
"""


class Run:
    """Output and log of one run of a script of the recipe."""

    def __init__(self, output: str, log: Path):
        self.output = output
        printed = re.findall(r"step=(\d+),.* loss=(\S+),", output)
        self.losses = {int(step): float(loss) for step, loss in printed}
        records = [json.loads(line.removeprefix("DLLL ")) for line in log.read_text().splitlines()]
        self.result = records[-1]["data"]


class Recipe:
    """A copy of the recipe with a small data set, and the starts of its scripts."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copytree(RECIPE or "", folder / "recipe")
        reader = folder / "recipe/dataloading/raw_binary_dataset.py"
        code = reader.read_text()
        assert code.count("/gpu:0") == 1
        reader.write_text(code.replace("/gpu:0", "/cpu:0"))
        (folder / "modules").mkdir()
        # Keras 2 draws initializers' seeds from `random`; the recipe's --seed is TensorFlow's.
        (folder / "modules/sitecustomize.py").write_text("import random\n\nrandom.seed(3)\n")
        for name, text in (("dllogger", DLLOGGER), ("tensorflow_addons", "")):
            if importlib.util.find_spec(name) is None:
                (folder / f"modules/{name}.py").write_text(text)
        write_data(folder / "data")
        self._runs = 0
        self._trained: dict[str, Run] = {}

    def run(self, *flags: str, ranks: int = 1, script: str = "dlrm.py") -> Run:
        self._runs += 1
        log = self.folder / f"{self._runs}.json"
        command = [sys.executable, str(self.folder / "recipe" / script)]
        if ranks > 1:
            horovodrun = str(Path(sys.executable).parent / "horovodrun")
            command = [sys.executable, horovodrun, "--gloo", "-np", str(ranks), *command]
        command += [
            *("--use_mde_embeddings", "--seed=1", f"--dataset_path={self.folder / 'data'}"),
            *(f"--batch_size={BATCH}", f"--valid_batch_size={BATCH}", f"--log_path={log}"),
            *("--embedding_dim=8", "--bottom_mlp_dims=32,8", "--top_mlp_dims=32,1"),
            *("--learning_rate=0.5", "--warmup_steps=5", "--print_freq=5"),
        ]
        has_kernel = importlib.util.find_spec("tensorflow_dot_based_interact") is not None
        if script == "dlrm.py" and not has_kernel:
            command += ["--interaction=dot_tensorflow"]
        package = Path(__file__).resolve().parents[1]
        paths = [str(self.folder / "modules"), str(package), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        done = subprocess.run(
            [*command, *flags],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return Run(done.stdout, log)

    def checkpoint(self, case: str) -> Path:
        return self.folder / case.replace(" ", "_").replace(",", "")

    def train(self, case: str) -> Run:
        """Trains from the same weights, once for each case."""
        if case not in self._trained:
            ranks, flags = CASES[case]
            self._trained[case] = self.run(
                *flags,
                "--embedding_zeros_initializer",
                f"--save_checkpoint_path={self.checkpoint(case)}",
                ranks=ranks,
            )
        return self._trained[case]

    def evaluate(self, case: str, ranks: int) -> Run:
        self.train(case)
        flags = CASES[case][1]
        return self.run(
            *flags,
            "--mode=eval",
            f"--restore_checkpoint_path={self.checkpoint(case)}",
            ranks=ranks,
        )

    def tables(self, case: str) -> list[np.ndarray]:
        self.train(case)
        folder = self.checkpoint(case) / "sparse"
        return [np.load(folder / f"feature_{i}.npy") for i in range(len(ROWS))]


def write_data(folder: Path) -> None:
    """Writes the recipe's raw format, labels drawn from a logistic model of the ids."""
    random = np.random.default_rng(0)
    scores = [random.normal(size=rows) for rows in ROWS]
    categorical = [f"cat_{i}.bin" for i in range(len(ROWS))]
    numerical = [f"num_{i}" for i in range(NUMERICAL)]
    dtypes = ["int8" if rows < 127 else "int16" for rows in ROWS]
    source: dict[str, list] = {}
    for part, batches in (("train", TRAIN_BATCHES), ("test", TEST_BATCHES)):
        samples = BATCH * batches
        (folder / part).mkdir(parents=True)
        ids = [random.integers(rows, size=samples) for rows in ROWS]
        logits = 1.5 * np.sum([s[i] for s, i in zip(scores, ids, strict=True)], axis=0)
        (random.random(samples) < 1 / (1 + np.exp(-logits))).tofile(folder / part / "label.bin")
        values = random.random((samples, NUMERICAL)).astype(np.float16)
        values.tofile(folder / part / "numerical.bin")
        for name, column, dtype in zip(categorical, ids, dtypes, strict=True):
            column.astype(dtype).tofile(folder / part / name)
        chunks = [(numerical, "numerical.bin"), (["label"], "label.bin")]
        chunks += [([name], name) for name in categorical]
        source[part] = [
            {"type": "split_binary", "features": names, "files": [f"{part}/{file}"]}
            for names, file in chunks
        ]
    features: dict[str, dict] = {name: {"dtype": "float16"} for name in numerical}
    features["label"] = {"dtype": "bool"}
    for name, dtype, rows in zip(categorical, dtypes, ROWS, strict=True):
        # `hotness` and `alpha` are of the recipe's synthetic data.
        features[name] = {"dtype": dtype, "cardinality": rows, "hotness": 1, "alpha": 1.1}
    spec = {
        "feature_spec": features,
        "source_spec": source,
        "channel_spec": {"categorical": categorical, "numerical": numerical, "label": ["label"]},
        "metadata": {},
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    if importlib.util.find_spec("horovod") is None:
        pytest.skip("the recipe imports Horovod, which is not installed")
    return Recipe(tmp_path_factory.mktemp("nvidia_recipe"))


@pytest.mark.parametrize("case", CASES)
def test_training(recipe, case):
    """The loss falls, and every case learns what one rank learns."""
    expected, run = recipe.train(REFERENCE), recipe.train(case)
    losses = list(run.losses.values())
    assert len(losses) >= 9
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.02
    assert run.result["auc"] > 0.6
    assert run.losses.keys() == expected.losses.keys()
    np.testing.assert_allclose(losses, list(expected.losses.values()), atol=1e-4)
    assert run.result["auc"] == pytest.approx(expected.result["auc"], abs=1e-3)
    for table, other in zip(recipe.tables(case), recipe.tables(REFERENCE), strict=True):
        np.testing.assert_allclose(table, other, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_evaluation_of_a_checkpoint(recipe, case):
    """One rank restores the checkpoint of any case, and evaluates what the training evaluated."""
    result = recipe.evaluate(case, ranks=1).result
    trained = recipe.train(case).result
    assert result["auc"] == pytest.approx(trained["auc"], abs=1e-4)
    assert result["test_loss"] == pytest.approx(trained["validation_loss"], abs=1e-4)


@pytest.mark.parametrize("case", [c for c in CASES if "2 ranks, model-parallel" in c])
def test_evaluation_on_two_ranks(recipe, case):
    """Two ranks restore a checkpoint; in this mode the recipe evaluates the first rank's half."""
    result = recipe.evaluate(case, ranks=2).result
    trained = recipe.train(case).result
    assert result["auc"] == pytest.approx(trained["auc"], abs=0.1)
    assert result["test_loss"] == pytest.approx(trained["validation_loss"], abs=0.1)
