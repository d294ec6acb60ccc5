"""Speed of NeuMF (`ncf.py --mode inference`) at several batch sizes, on drawn users and items.

python inference.py --batch_sizes 1,64,4096 --num_batches 200
python inference.py --load_checkpoint_path CHECKPOINTS
"""

import re
import sys
from collections.abc import Sequence

import main as entry
from recipes import collaborative
from recipes.definition import Definition
from recipes.registry import NCF

# NVIDIA's script, whose model is that of ML-20M.
INFERENCE = Definition(
    "ncf",
    collaborative.build,
    {
        **NCF.defaults,
        "mode": "inference",
        "preset": "terabyte",
        "batch_sizes": tuple(4**power for power in range(11)),
        "max_steps": 200,
    },
    {**NCF.aliases, "num_batches": "max_steps", "fp16": "amp"},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurement; returns the exit code."""
    argv = sys.argv if argv is None else argv
    # NVIDIA's later script has one batch size, which is not that of a training.
    argv = [re.sub(r"^--batch_size(?=$|=)", "--batch_sizes", argument) for argument in argv]
    return entry.run(INFERENCE, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
