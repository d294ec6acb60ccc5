"""Accuracy of a served model on held-out samples of its data set.

    python -m deployment.evaluate_accuracy --checkpoint_dir checkpoint --url 127.0.0.1:8001

Samples are streamed to the server with several requests in flight.
"""

import sys

from config.command import parse
from deployment import nvidia_flags
from deployment.evaluate_accuracy.options import AccuracyOptions
from runtime.cli import exit_status
from runtime.tensorflow_start import import_tensorflow


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 1 if served and trained model differ, see
    `exit_status`."""

    def work() -> int:
        arguments = nvidia_flags.ACCURACY.translate(argv)
        flags = parse(AccuracyOptions, arguments, "deployment.evaluate_accuracy")
        # TensorFlow takes seconds to import: flags are checked first.
        import_tensorflow()
        from deployment.evaluate_accuracy.evaluation import evaluate

        return evaluate(flags)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
