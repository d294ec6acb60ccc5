"""Writes a trained model as models of Triton Inference Server.

python -m deployment.deploy --checkpoint_dir runs/demo/checkpoint --model_repository repository
"""

import sys

from deployment import nvidia_flags
from deployment.deploy.deploy_options import parse
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm
from runtime.tensorflow_start import import_tensorflow


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""

    def work() -> None:
        options = parse(nvidia_flags.DEPLOY.translate(argv))
        # TensorFlow takes seconds to import: flags are checked first.
        import_tensorflow()
        from deployment.deploy.deployer import deploy

        print(deploy(options))

    with interrupted_by_sigterm():
        return exit_status(work, "interrupted; the repository has all new models or none of them")


if __name__ == "__main__":
    sys.exit(main())
