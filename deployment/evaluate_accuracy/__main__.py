"""Accuracy of a served model on held-out samples of its data set.

    python -m deployment.evaluate_accuracy --checkpoint_dir checkpoint --url 127.0.0.1:8001

Samples are streamed to the server with several requests in flight.
"""

import argparse
import sys
from pathlib import Path

from deployment import nvidia_flags
from deployment.option_checks import add_request_flags, check_ranges
from runtime.cli import exit_status
from runtime.options import tool_parser


def _check(options: argparse.Namespace) -> None:
    minimum = {"batch_size": 1, "in_flight": 1, "max_rows": 1, "tolerance": 0, "wait_s": 0}
    check_ranges(vars(options), minimum | {"auc_thresholds": 2, "print_freq": 1})
    if options.tolerance is not None and not options.trained:
        raise ValueError("--tolerance is for the comparison with --trained: give both or neither")
    if options.model and (options.url or options.model_name or options.in_flight or options.wait_s):
        raise ValueError(
            "--model scores without a server: leave --url, --model_name, --in_flight and --wait_s "
            "out"
        )
    options.tolerance = 1e-6 if options.tolerance is None else options.tolerance
    if options.max_steps is not None:
        if options.max_rows is not None or options.max_steps < 1:
            raise ValueError("--max_steps: expected 1 or more, and no --max_rows")
        options.max_rows = options.max_steps * options.batch_size
    if options.checkpoint_dir is None:
        _check_data_set(options)
    elif options.feature_spec or options.dataset_type:
        raise ValueError(
            "--feature_spec and --dataset_type: the checkpoint names its data set and how it is "
            "stored; leave them out, or --checkpoint_dir"
        )
    options.url = options.url or "127.0.0.1:8001"
    options.in_flight = options.in_flight or 4


def _check_data_set(options: argparse.Namespace) -> None:
    if not options.dataset_path:
        raise ValueError("--checkpoint_dir or --dataset_path: expected one of them, got neither")
    if options.trained or options.model:
        raise ValueError("--trained and --model need the --checkpoint_dir of the model")
    if not options.model_name:
        raise ValueError(
            "--model_name: expected the name of the served model, without a checkpoint"
        )


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "deployment.evaluate_accuracy", "Evaluates a served model on the test rows of its data set."
    )
    add_request_flags(parser)
    add = parser.add_argument
    add("--url", help="host:port of the server's gRPC (default: 127.0.0.1:8001)")
    add("--model_name", help="name of the served model (default: the recipe)")
    add("--model", help="folder of a deployed model, instead of a server")
    add(
        "--eval_mapping",
        default="auto",
        choices=("auto", "train", "validation", "test"),
        help="split; auto (default): test, or validation if there is no test split. A training "
        "evaluates on validation",
    )
    add("--batch_size", type=int, default=1024, help="rows of a request (default: 1024)")
    add("--in_flight", type=int, help="requests in flight (default: 4)")
    add("--max_rows", type=int, help="number of first rows (default: all)")
    help_text = "batches instead of --max_rows, as NVIDIA's tool counts"
    add("--max_steps", type=int, help=help_text)
    add("--auc_thresholds", type=int, help="bins of an approximate AUC (default: the exact AUC)")
    add("--print_freq", type=int, help="requests between lines of progress (default: none)")
    add("--log_path", type=Path, help="DLLL file of the results under NVIDIA's names")
    add("--trained", action="store_true", help="compare with the checkpoint in TensorFlow")
    add("--tolerance", type=float, help="largest difference of a metric (default: 1e-6)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 1 if served and trained model differ, see
    `exit_status`."""

    def work() -> int:
        flags = _parser().parse_args(nvidia_flags.ACCURACY.translate(argv))
        _check(flags)
        # TensorFlow takes seconds to import: flags are checked first.
        from deployment.evaluate_accuracy.evaluation import evaluate

        return evaluate(flags)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
