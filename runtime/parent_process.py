"""Worker processes that do not outlive the process that started them."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Ends this process, started by `multiprocessing`, at once when its parent ends.

    A worker of a parent that was killed would otherwise wait for work forever. Does nothing in a
    process that `multiprocessing` did not start.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
