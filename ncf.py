"""Neural collaborative filtering (He et al., 2017): NeuMF, GMF and MLP.

python ncf.py --data DIR --checkpoint_dir CHECKPOINTS
python ncf.py --data DIR --checkpoint_dir CHECKPOINTS --mode test
"""

import os
import sys
from collections.abc import Sequence

import main as entry
from recipes import collaborative

# Defaults of NVIDIA's recipe, if they differ from those of DLRM.
DEFAULTS = {
    "optimizer": "adam",
    "learning_rate": 0.0045,
    "beta1": 0.25,
    "beta2": 0.5,
    "epsilon": 1e-8,
    "warmup_steps": 0,
    "decay_steps": 0,
    "epochs": 30,
    "batch_size": 2**20,
    "valid_batch_size": 2**20,
    "amp": None,
    "loss_scale": "dynamic",
}
# Flag names of NVIDIA's recipe, its short names included.
ALIASES = {
    "data": "dataset_path",
    "feature_spec_file": "feature_spec",
    "e": "epochs",
    "b": "batch_size",
    "f": "factors",
    "n": "negative_samples",
    "l": "learning_rate",
    "k": "topk",
    "s": "seed",
    "t": "threshold",
    "b1": "beta1",
    "b2": "beta2",
    "eps": "epsilon",
    "load_checkpoint_path": "restore_checkpoint_path",
    "checkpoint_path": "restore_checkpoint_path",
    "mode=test": "mode=eval",
}
# Folder for all data in NVIDIA's container; checkpoints go there if it exists.
CONTAINER_DATA = "/data"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    defaults = dict(DEFAULTS)
    if os.access(CONTAINER_DATA, os.W_OK):
        defaults["checkpoint_dir"] = os.path.join(CONTAINER_DATA, "checkpoints")
    return entry.run(
        "ncf",
        collaborative.build,
        __doc__,
        defaults,
        argv,
        aliases=ALIASES,
        report_plan=collaborative.report_plan,
    )


if __name__ == "__main__":
    sys.exit(main())
