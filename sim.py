"""SIM, the search-based interest model (Pi et al., 2020), and with --model_type DIEN and DIN.

python sim.py --dataset_path DIR --save_checkpoint_path CHECKPOINTS
python sim.py --dataset_path DIR --load_checkpoint_path CHECKPOINTS --mode inference
"""

import sys
from collections.abc import Sequence

import main as entry
from recipes import sequential

# Defaults of NVIDIA's recipe, if they differ from those of DLRM.
DEFAULTS = {
    "embedding_dim": "16",
    "optimizer": "adam",
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "decay_steps": 0,
    "epochs": 3,
    "batch_size": 131072,
    "valid_batch_size": None,
    "prefetch_batches": 10,
    "print_freq": 10,
    "warmup_batches": 20,
    "affinity": "socket_unique_interleaved",
    "run_dir": "/tmp/sim",
    "seed": -1,
    "loss_scale": "dynamic",
}
# Flag names of NVIDIA's recipe.
ALIASES = {
    "dataset_dir": "dataset_path",
    "global_batch_size": "batch_size",
    "lr": "learning_rate",
    "prefetch_train_size": "prefetch_batches",
    "results_dir": "run_dir",
    "benchmark_warmup_steps": "warmup_batches",
    "affinity=single": "affinity=socket_single",
    "affinity=single_unique": "affinity=socket_single_unique",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    report_plan = sequential.report_plan
    return entry.run(
        "sim", sequential.build, __doc__, DEFAULTS, argv, aliases=ALIASES, report_plan=report_plan
    )


if __name__ == "__main__":
    sys.exit(main())
