"""Accuracy of a served model on held-out samples of its data set.

    python -m deployment.evaluate_accuracy --checkpoint_dir checkpoint --url 127.0.0.1:8001

Samples are streamed to the server with several requests in flight.
"""

import argparse
import sys
from pathlib import Path

from deployment import nvidia_flags
from deployment.option_checks import add_request_flags, check_ranges, refuse
from runtime.cli import exit_status
from runtime.options import tool_parser


def _check(options: argparse.Namespace) -> None:
    minimum = {"batch_size": 1, "in_flight": 1, "max_rows": 1, "tolerance": 0, "wait_s": 0}
    check_ranges(vars(options), minimum | {"auc_thresholds": 2, "print_freq": 1})
    names = ("url", "model_name", "in_flight", "wait_s")
    is_local, of_server = bool(options.model), any(getattr(options, name) for name in names)
    described = options.feature_spec or options.dataset_type
    is_compared, unknown = options.trained, options.checkpoint_dir is None
    steps, has_tolerance = options.max_steps, options.tolerance is not None
    bad_steps = steps is not None and (steps < 1 or options.max_rows is not None)
    refuse(
        {
            "--tolerance: only with --trained": has_tolerance and not is_compared,
            f"--model: without --{', --'.join(names)}": is_local and of_server,
            "--max_steps: expected 1 or more, and no --max_rows": bad_steps,
            "--feature_spec, --dataset_type: the checkpoint has them": described and not unknown,
            "--checkpoint_dir or --dataset_path: missing": unknown and not options.dataset_path,
            "--trained, --model: expected --checkpoint_dir": unknown and (is_compared or is_local),
            "--model_name: expected without a checkpoint": unknown and not options.model_name,
        }
    )
    options.tolerance = options.tolerance if has_tolerance else 1e-6
    if steps is not None:
        options.max_rows = steps * options.batch_size
    options.url = options.url or "127.0.0.1:8001"
    options.in_flight = options.in_flight or 4


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
