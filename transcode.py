"""`python -m dataloading.transcode` under the name of NVIDIA's script; --path is --input."""

import sys

from dataloading.transcode.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
