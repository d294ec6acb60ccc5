"""The embedding bag's part of the harness."""

from collections.abc import Iterable, Iterator

from tests.gpu import build
from tests.gpu.embedding_bag import arguments, cases, check, timing
from tests.gpu.embedding_bag.cases import BagCase
from tests.gpu.embedding_bag.library import OPTIMIZERS, BagLibrary, EmulatedBagLibrary

SOURCES, LIBRARY, EMULATED, TIMING = build.BAG_SOURCES, BagLibrary, EmulatedBagLibrary, timing


def checked(library: BagLibrary, memory, long: bool) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each check, and descriptions of its errors."""
    yield "arguments", arguments.check_arguments(library, memory)
    for function, sweep in check.CHECKS:
        for case, complaints in check.sweep(function, library, memory, sweep(long)):
            yield f"{function.__name__}, {case}", complaints


def in_other_orders(
    library: EmulatedBagLibrary, memory, seeds: Iterable[int]
) -> Iterator[tuple[BagCase, list[str]]]:
    """Yields cases, and what depends on the order of the emulator's threads and blocks."""
    for optimizer in OPTIMIZERS:
        case = BagCase(12, 40, cases.LONG, weighted=True, optimizer=optimizer, uses=2)
        yield case, check.same_for_every_order(library, memory, case, seeds)
