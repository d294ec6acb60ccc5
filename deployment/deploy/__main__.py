"""Writes a trained model as models of Triton Inference Server.

python -m deployment.deploy --checkpoint_dir runs/demo/checkpoint --model_repository repository
"""

import argparse
import sys

from deployment import nvidia_flags
from deployment.deploy.deploy_options import DeployOptions
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm
from runtime.options import add_flags, tool_parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""

    def work() -> None:
        options = DeployOptions(**vars(_parser().parse_args(nvidia_flags.DEPLOY.translate(argv))))
        # TensorFlow takes seconds to import: flags are checked first.
        from deployment.deploy.deployer import deploy

        print(deploy(options))

    with interrupted_by_sigterm():
        return exit_status(work, "interrupted; the repository has all new models or none of them")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "deployment.deploy",
        "Writes a trained model of any recipe as models of Triton Inference Server: "
        "lookups, the dense part, and an ensemble of both, or one model. They appear in the "
        "repository when all of them are complete.",
        argument_default=argparse.SUPPRESS,
    )
    add_flags(parser, DeployOptions)
    return parser


if __name__ == "__main__":
    sys.exit(main())
