"""Progress bars of the tools, on a terminal only."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(
    label: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], object]]:
    """Yields a function that advances the bar by a number of units.

    There is no bar where stderr is not a terminal, so that files and pipes stay readable.

    Args:
        label: text before the bar.
        unit: what is counted.
        total: units in all; without it the bar shows count and rate alone.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from tqdm import tqdm

    with tqdm(
        total=total, desc=label, unit=unit, unit_scale=True, file=sys.stderr, leave=False
    ) as bar:
        yield bar.update
