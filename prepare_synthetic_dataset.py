"""`python -m dataloading.prepare_synthetic_dataset` under the name of NVIDIA's script."""

import sys

from dataloading.prepare_synthetic_dataset import main

if __name__ == "__main__":
    sys.exit(main())
