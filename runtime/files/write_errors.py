"""Writes that fail, mostly because the disk is full, as one OSError that names the file.

What Python, NumPy and TensorFlow say of them names no file, or is no OSError.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def names_file(path: Path) -> Iterator[None]:
    """A block that writes this file.

    Raises:
        OSError: the block raised one, or an error of TensorFlow.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        reason = error.strerror or error
    except Exception as error:
        # Whoever writes without TensorFlow shall not import it to hear that it did not fail.
        if not type(error).__module__.startswith("tensorflow."):
            raise
        reason = str(error).removeprefix(f"{path}; ")
    else:
        return
    raise OSError(
        f"{path} could not be written: {reason}. Is the disk full, or the file too large?"
    )
