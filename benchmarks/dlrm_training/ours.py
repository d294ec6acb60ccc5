"""Our side: the recipe `dlrm.py` with its loader and training step.

The samples come from split binaries, as in any training; they are in the page cache.
"""

import argparse

from distributed_embeddings.collectives import World

import config as configuration
from benchmarks.dlrm_training import workload
from benchmarks.harness.tensorflow_training import RecipeTraining, serve_training
from benchmarks.harness.worker import load_sizes, parser_of
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from recipes import ctr
from runtime.hardware import device


def make(args: argparse.Namespace, sizes: workload.DLRMSizes, **flags) -> RecipeTraining:
    """The recipe in training, with its flags except those that the benchmark needs."""
    config = configuration.Config("dlrm").replace(
        dataset_path=str(args.folder / "rows"),
        batch_size=sizes.batch_size,
        valid_batch_size=sizes.batch_size,
        eval_mapping=TRAIN,
        embedding_dim=str(sizes.embedding_dim),
        bottom_mlp_dims=sizes.bottom_mlp_dims,
        top_mlp_dims=sizes.top_mlp_dims,
        interaction=args.interaction,
        shuffle=False,  # the peer reads the samples in file order
        learning_rate=workload.LEARNING_RATE,
        warmup_steps=0,
        decay_steps=0,
        seed=1,
        cpu=True,
        intra_op_parallelism=args.threads,
        inter_op_parallelism=args.threads,
        **flags,
    )
    place = device.set_up(config.device, 0, 1)
    spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
    recipe = ctr.build(config, spec, World(), place)
    names = [f"table_{t}" for t in range(len(sizes.table_rows))]
    trainer = recipe.make_trainer(place.loss_scale, World())
    return RecipeTraining(recipe.model, trainer, iter(recipe.train.dataset().repeat()), names)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--interaction", default="dot")
    args = parser.parse_args()
    sizes = load_sizes(args.folder, workload.DLRMSizes)
    serve_training(args, lambda **flags: make(args, sizes, **flags))


if __name__ == "__main__":
    main()
