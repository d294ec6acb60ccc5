"""Neural collaborative filtering (He et al., 2017): NeuMF, GMF and MLP.

python ncf.py --data DIR --checkpoint_dir CHECKPOINTS
python ncf.py --data DIR --checkpoint_dir CHECKPOINTS --mode test
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

import main as entry
from recipes.collaborative.family import NCF

# Folder for all data in NVIDIA's container; checkpoints go there if it exists.
CONTAINER_DATA = "/data"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    defaults = dict(NCF.defaults)
    if os.access(CONTAINER_DATA, os.W_OK):
        defaults["checkpoint_dir"] = os.path.join(CONTAINER_DATA, "checkpoints")
    return entry.run(dataclasses.replace(NCF, defaults=defaults), __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
