"""The dot interaction's part of the harness."""

from collections.abc import Iterable, Iterator

from tests.gpu import build, cases, check, timing
from tests.gpu.cases import Case
from tests.gpu.library import EmulatedLibrary, Library

SOURCES, LIBRARY, EMULATED, TIMING = build.SOURCES, Library, EmulatedLibrary, timing


def checked(library: Library, memory, long: bool) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each check, and descriptions of its errors."""
    yield "arguments", check.check_arguments(library, memory)
    is_emulated = isinstance(library, EmulatedLibrary)
    sweep = cases.for_emulator(long) if is_emulated else cases.for_gpu(long)
    for case, complaints in check.sweep(library, memory, sweep):
        yield f"{case} ({check.kernel_of(library, case)})", complaints


def in_other_orders(
    library: EmulatedLibrary, memory, seeds: Iterable[int]
) -> Iterator[tuple[Case, list[str]]]:
    """Yields cases, and what depends on the order of the emulator's threads."""
    for case in cases.for_seeds():
        library.set_device(case.device)
        yield case, check.same_for_every_seed(library, memory, case, seeds)
