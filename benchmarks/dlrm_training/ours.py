"""Our side: the recipe `dlrm.py` with its loader and training step.

The samples come from split binaries, as in any training; they are in the page cache.
"""

from pathlib import Path

from distributed_embeddings.collectives import World

from benchmarks.dlrm_training import workload
from benchmarks.harness.tensorflow_training import RecipeTraining, starting
from benchmarks.harness.worker import Started, load_sizes
from config.config import Config
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from recipes.registry import DLRM
from training import device_setup


def make(folder: Path, threads: int, **flags) -> RecipeTraining:
    """The recipe in training, with its flags except those that the benchmark needs."""
    sizes = load_sizes(folder, workload.DLRMSizes)
    config = Config(DLRM).replace(
        dataset_path=str(folder / "rows"),
        batch_size=sizes.batch_size,
        valid_batch_size=sizes.batch_size,
        eval_mapping=TRAIN,
        embedding_dim=str(sizes.embedding_dim),
        bottom_mlp_dims=sizes.bottom_mlp_dims,
        top_mlp_dims=sizes.top_mlp_dims,
        shuffle=False,  # the peer reads the samples in file order
        learning_rate=workload.LEARNING_RATE,
        warmup_steps=0,
        decay_steps=0,
        seed=1,
        cpu=True,
        intra_op_parallelism=threads,
        inter_op_parallelism=threads,
        **flags,
    )
    place = device_setup.set_up(config.device)
    spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
    recipe = DLRM.family.build(config, spec, World(), place)
    names = [f"table_{t}" for t in range(len(sizes.table_rows))]
    trainer = recipe.make_trainer(place.loss_scale, World())
    return RecipeTraining(recipe.model, trainer, iter(recipe.train.dataset().repeat()), names)


def side(folder: Path, threads: int, interaction: str = "dot") -> Started:
    return starting(folder, lambda **flags: make(folder, threads, interaction=interaction, **flags))
