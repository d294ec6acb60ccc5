"""Makes the multi-hot data set of MLPerf Training's DLRM-DCNv2 from one id per feature.

python -m preproc.criteo.multi_hot --input data/criteo --output data/criteo_multi_hot
"""

import argparse
import sys

from preproc.arguments import passed_flags
from preproc.criteo.multi_hot.options import MultiHotOptions
from preproc.criteo.multi_hot.prepare import prepare
from runtime.cli import exit_status
from runtime.options import add_flags


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""
    parser = argparse.ArgumentParser(
        prog="python -m preproc.criteo.multi_hot", description=__doc__, allow_abbrev=False
    )
    add_flags(parser, MultiHotOptions)
    flags = passed_flags(parser, argv)

    def work() -> None:
        print(prepare(MultiHotOptions(**flags)))

    return exit_status(work, "interrupted; run it again to resume")


if __name__ == "__main__":
    sys.exit(main())
