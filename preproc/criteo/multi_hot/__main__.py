"""Makes the multi-hot data set of MLPerf Training's DLRM-DCNv2 from one id per feature.

python -m preproc.criteo.multi_hot --input data/criteo --output data/criteo_multi_hot
"""

import sys

from config.command import parse
from preproc.criteo.multi_hot.options import MultiHotOptions
from preproc.criteo.multi_hot.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work() -> None:
        print(prepare(parse(MultiHotOptions, argv, "preproc.criteo.multi_hot", __doc__)))

    return exit_status(work, "interrupted; run it again to resume")


if __name__ == "__main__":
    sys.exit(main())
