"""DCNv2, the deep and cross network with low-rank cross layers (Wang et al., 2021).

python dcnv2.py --dataset_path DIR --save_checkpoint_path CHECKPOINTS --resume auto
python dcnv2.py --dataset_path DIR --restore_checkpoint_path CHECKPOINTS --mode eval
"""

import sys
from collections.abc import Sequence

import main as entry
from recipes.ranking.family import DCNV2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    return entry.run(DCNV2, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
