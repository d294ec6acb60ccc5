"""The embedding bag's part of the harness."""

import argparse
import time
from collections.abc import Sequence

from tests.gpu import build
from tests.gpu.embedding_bag import arguments, cases, check
from tests.gpu.embedding_bag.library import OPTIMIZERS, BagLibrary, EmulatedBagLibrary
from tests.gpu.memory import GpuMemory, HostMemory, Memory

_MOST_FAILURES = 20  # printed; the others are counted


def emulate(args: argparse.Namespace) -> int:
    """Checks the kernels on the emulator; returns the number of failures."""
    variant = "sanitized" if args.sanitize else "checked"
    started = time.monotonic()
    path = build.emulated(args.emulate, variant, folder=build.BAG_SOURCES)
    print(f"built {path.name} in {time.monotonic() - started:.1f} s", flush=True)
    library = EmulatedBagLibrary(path)
    memory = HostMemory(library)
    failures = check_all(library, memory, args.long)
    for optimizer in OPTIMIZERS:
        case = cases.BagCase(12, 40, cases.LONG, weighted=True, optimizer=optimizer, uses=2)
        complaints = check.same_for_every_order(library, memory, case, range(1, args.seeds + 1))
        for complaint in complaints:
            print(f"WRONG {case}: {complaint}")
        failures += bool(complaints)
    return failures


def run_on_gpu(args: argparse.Namespace, torch, command: Sequence[str]) -> int:
    """Checks and measures the kernels on a GPU; returns the number of failures."""
    from tests.gpu import rounds
    from tests.gpu.embedding_bag import timing

    major, minor = torch.cuda.get_device_capability()
    started = time.monotonic()
    library = BagLibrary(build.for_gpu(10 * major + minor, build.BAG_SOURCES))
    print(f"built {library.path.name} in {time.monotonic() - started:.1f} s", flush=True)
    failures = check_all(library, GpuMemory(torch), args.long)
    for complaint in timing.check_large(library, torch):
        print(f"WRONG on a large table: {complaint}")
        failures += 1
    if not args.no_timing:
        rows = timing.measure(library, torch)
        print(timing.table(rows), flush=True)
        if args.output is not None:
            machine = rounds.machine(torch) | {"nvcc": build.nvcc_version()}
            args.output.write_text(timing.page(rows, machine, command))
    return failures


def check_all(library: BagLibrary, memory: Memory, long: bool) -> int:
    """Checks the arguments and every case; prints what is wrong; returns the number of failures."""
    started = time.monotonic()
    complaints = arguments.check_arguments(library, memory)
    for complaint in complaints:
        print(f"WRONG arguments: {complaint}", flush=True)
    failures, num_cases = len(complaints), 0
    for function, sweep in check.CHECKS:
        for case, complaints in check.sweep(function, library, memory, sweep(long)):
            num_cases += 1
            failures += bool(complaints)
            if complaints and failures <= _MOST_FAILURES:
                print(f"WRONG {function.__name__}, {case}:", *complaints, sep="\n    ", flush=True)
    elapsed_s = time.monotonic() - started
    print(f"{num_cases} cases, {failures} wrong, in {elapsed_s:.0f} s", flush=True)
    return failures
