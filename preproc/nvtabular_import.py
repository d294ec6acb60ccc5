"""NVTabular, imported and kept quiet, for the engines that use it."""

import contextlib
import sys
import warnings


def imported():
    """NVTabular, imported without TensorFlow, which it would import for nothing if it is there:
    3 s and 350 MiB.

    Raises:
        ValueError: it cannot be imported.
    """
    hidden = "tensorflow" not in sys.modules
    if hidden:
        sys.modules["tensorflow"] = None
    try:
        with warnings.catch_warnings():
            # It tells of each optional package that is absent.
            warnings.simplefilter("ignore")
            import nvtabular
            import nvtabular.ops
    except ImportError as error:
        raise ValueError(
            f"--engine nvtabular needs NVTabular, which cannot be imported here ({error}); run "
            "`make engines`, or use --engine duckdb"
        ) from error
    finally:
        if hidden:
            del sys.modules["tensorflow"]
    return nvtabular


@contextlib.contextmanager
def quiet():
    """Without NVTabular's remark, at each data set, that there is no GPU."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing an NVTabular Dataset in CPU mode")
        yield
