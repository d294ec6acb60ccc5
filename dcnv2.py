"""DCNv2, the deep and cross network with low-rank cross layers (Wang et al., 2021).

python dcnv2.py --dataset_path DIR --save_checkpoint_path CHECKPOINTS --resume auto
python dcnv2.py --dataset_path DIR --restore_checkpoint_path CHECKPOINTS --mode eval
"""

import sys
from collections.abc import Sequence

import main as entry
from recipes import ctr

# Defaults that differ from DLRM: cross layers, and Adam in place of SGD.
DEFAULTS = {
    "interaction": "cross",
    "optimizer": "adam",
    "learning_rate": 0.0001,
    "warmup_steps": 100,
}
ALIASES = ctr.ALIASES


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    return entry.run(
        *("dcnv2", ctr.build, __doc__, DEFAULTS, argv),
        aliases=ALIASES,
        report_plan=ctr.report_plan,
    )


if __name__ == "__main__":
    sys.exit(main())
