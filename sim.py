"""SIM, the search-based interest model (Pi et al., 2020), and with --model_type DIEN and DIN.

python sim.py --dataset_path DIR --save_checkpoint_path CHECKPOINTS
python sim.py --dataset_path DIR --load_checkpoint_path CHECKPOINTS --mode inference
"""

import sys
from collections.abc import Sequence

import main as entry
from recipes.sequential.family import SIM


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    return entry.run(SIM, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
