"""How every tool of dataloading and preproc ends: with a result, or with one sentence."""

import os
import sys
from collections.abc import Callable

USER_ERROR = 2  # exit status for wrong flags or data and a full disk, as argparse's own
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT, as the shell counts


def exit_status(work: Callable[[], int | None], interrupted: str = "interrupted") -> int:
    """Does a tool's work; returns what it returns, 0 for None, or 2 or 130 with a message.

    Args:
        work: may raise ValueError and OSError, whose text is for the user.
        interrupted: what to say after Ctrl-C.
    """
    # Hides the start-up lines of TensorFlow, which some tools import while they work.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        return work() or 0
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
