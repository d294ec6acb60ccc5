"""Writes a trained model as models of Triton Inference Server.

python -m deployment.deploy --checkpoint_dir runs/demo/checkpoint --model_repository repository
"""

import sys

from deployment.deploy.arguments import parse
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error, 130 after Ctrl-C or
    SIGTERM."""

    def work() -> None:
        options = parse(argv)
        # TensorFlow takes seconds to import: flags are checked first.
        from deployment.deploy.deployer import deploy

        print(deploy(options).report())

    with interrupted_by_sigterm():
        return exit_status(work, "interrupted; the repository has all new models or none of them")


if __name__ == "__main__":
    sys.exit(main())
