"""Training throughput of DLRM compared with a plain PyTorch DLRM, in one interleaved run."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from distributed_embeddings.collectives import World

from benchmarks.harness import training
from benchmarks.harness.tensorflow_training import RecipeTraining, num_threads
from benchmarks.harness.training import Case, Side, TrainingOptions
from benchmarks.harness.worker import load
from config.config import Config
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.columns import Role
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from recipes.registry import DLRM
from training import device_setup

OURS = Side("ours (TensorFlow)", "dlrm_training")
PEER = Side("PyTorch", "peers.torch_dlrm")
TARGET_RATIO = 1.5
ID_ALPHA = 1.1  # ids follow P(id=k) ~ (k+1)^-alpha
# 26 tables with 400,000 rows in all, as skewed as the columns of real click logs.
TABLE_ROWS = (140_000, 90_000, 60_000, 40_000, 25_000, 15_000, 10_000, 6_000, 4_000, 3_000, 2_000)
TABLE_ROWS += (1_500, 1_000, 700, 500, 400, 250, 200, 150, 100, 70, 50, 40, 20, 12, 8)
SIZES = {
    "batch_size": 8192,
    "num_batches": 16,  # different ones
    "table_rows": TABLE_ROWS,
    "embedding_dim": 128,
    "bottom_mlp_dims": (512, 256, 128),
    "top_mlp_dims": (1024, 1024, 512, 256, 1),
    "learning_rate": 0.1,
}
QUICK = {"batch_size": 64, "num_batches": 4, "table_rows": (50, 20), "embedding_dim": 8}
QUICK |= {"bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1)}


def make_rows(sizes: SimpleNamespace, folder: Path) -> dict[str, np.ndarray]:
    """Writes split binaries, and returns the same samples for PyTorch.

    Returns:
        numerical: float32 [n, 13].
        ids: int64 [n, 26].
        labels: float32 [n, 1].
    """
    num_rows = str(sizes.batch_size * sizes.num_batches)
    command = [sys.executable, "-m", "dataloading.synthetic", "--output", str(folder / "rows")]
    command += ["--rows", num_rows, "--validation_rows", "1", "--test_rows", "1"]
    command += ["--cardinalities", ",".join(map(str, sizes.table_rows)), "--alpha", str(ID_ALPHA)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    spec = FeatureSpec.from_yaml(folder / "rows/feature_spec.yaml")
    loader, columns = StoredDataset(spec, TRAIN, 1), defaultdict(list)
    arrays = loader.stored_samples(0, loader.num_samples)
    for column, array in zip(loader.columns, arrays, strict=True):
        columns[column.role].append(array.reshape(len(array), -1))
    joined = {role: np.concatenate(parts, 1) for role, parts in columns.items()}
    return {
        "numerical": joined[Role.NUMERICAL].astype(np.float32),
        "ids": joined[Role.CATEGORICAL].astype(np.int64),
        "labels": joined[Role.LABEL].astype(np.float32),
    }


def start(folder: Path, precision: str, interaction: str = "dot") -> RecipeTraining:
    """Our side: the recipe `dlrm.py` with its loader, and its flags but those that follow.

    The samples come from split binaries, as in any training; they are in the page cache.
    """
    _, sizes = load(folder)
    threads = num_threads()
    config = Config(DLRM).replace(
        dataset_path=str(folder / "rows"),
        batch_size=sizes.batch_size,
        valid_batch_size=sizes.batch_size,
        eval_mapping=TRAIN,
        embedding_dim=str(sizes.embedding_dim),
        bottom_mlp_dims=sizes.bottom_mlp_dims,
        top_mlp_dims=sizes.top_mlp_dims,
        interaction=interaction,
        shuffle=False,  # the peer reads the samples in file order
        learning_rate=sizes.learning_rate,
        warmup_steps=0,
        decay_steps=0,
        seed=1,
        cpu=True,
        intra_op_parallelism=threads,
        inter_op_parallelism=threads,
        amp=precision == "bfloat16",
    )
    place = device_setup.set_up(config.device)
    spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
    recipe = DLRM.family.build(config, spec, World(), place)
    trainer = recipe.make_trainer(place.loss_scale, World())
    batches = iter(recipe.train.dataset().repeat())
    names = [f"table_{t}" for t in range(len(sizes.table_rows))]
    return RecipeTraining(recipe.model, trainer, batches).save_weights(folder, names)


def cases_of(sides: Sequence[Side], args: TrainingOptions) -> list[Case]:
    sizes = SimpleNamespace(**SIZES | (QUICK if args.quick else {}))
    return training.precisions(sides, sizes, TARGET_RATIO)


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(TrainingOptions, argv, "dlrm_training", __doc__, rounds=12, steps=3)
    cases = cases_of((OURS, PEER, PEER.memory_kept()), args)
    fact, title = "ours: the recipe `dlrm.py` with its loader; SGD", "Training throughput of DLRM"
    return training.run("dlrm_training", title, cases, make_rows, args, fact)


if __name__ == "__main__":
    sys.exit(main())
