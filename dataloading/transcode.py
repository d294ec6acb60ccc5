"""The former path of `python -m preproc.transcode`."""

import sys

if __name__ == "__main__":
    sys.exit(
        "error: dataloading.transcode is now preproc.transcode: run `python -m preproc.transcode` "
        "with the same flags; --standardize is now --transform standardize"
    )
