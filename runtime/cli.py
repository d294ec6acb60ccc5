"""Endings of command-line tools: a result, or a one-line error message and an exit status."""

import os
import sys
from collections.abc import Callable

from runtime.files.paths import error_text
from runtime.tensorflow_start import prepare_tensorflow

USER_ERROR = 2  # exit status for wrong flags or data and a full disk, as argparse's own
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT, as the shell counts
BROKEN_PIPE = 141  # the reader of stdout ended, such as `| head`: 128 + SIGPIPE


def exit_status(work: Callable[[], int | None], interrupted: str = "interrupted") -> int:
    """Runs a tool and returns its exit status.

    Args:
        work: may raise ValueError and OSError with messages for the user.
        interrupted: message after Ctrl-C.

    Returns:
        The result of `work`, 0 for None; or `USER_ERROR`, `INTERRUPTED` or `BROKEN_PIPE`.
    """
    prepare_tensorflow()  # some tools import TensorFlow while they work
    try:
        status = work() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE
    except (ValueError, OSError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        _discard_stdout()
        return USER_ERROR
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED


def _discard_stdout() -> None:
    """Drops output that cannot be written, at which Python would fail again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())
