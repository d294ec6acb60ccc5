"""Progress bars of the tools, on a terminal only."""

import sys


def progress_bar(label: str, unit: str, total: int | None = None):
    """Returns a bar of tqdm on stderr, which shows nothing where that is not a terminal.

    Without a total the bar shows count and rate alone.
    """
    from tqdm import tqdm

    return tqdm(
        total=total,
        desc=label,
        unit=unit,
        unit_scale=True,
        file=sys.stderr,
        leave=False,
        disable=None,
    )
