"""`python -m dataloading.gen_csv` under the name of NVIDIA's script."""

import sys

from dataloading.gen_csv import main

if __name__ == "__main__":
    sys.exit(main())
