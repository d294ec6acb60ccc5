"""DLRM, the deep learning recommendation model (Naumov et al., 2019).

python dlrm.py --dataset_path DIR --save_checkpoint_path CHECKPOINTS --resume auto
python dlrm.py --dataset_path DIR --restore_checkpoint_path CHECKPOINTS --mode eval
"""

import sys
from collections.abc import Sequence

import main as entry
from recipes.ranking.family import DLRM


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    return entry.run(DLRM, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
