"""The dot interaction's part of the harness."""

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from tests.gpu import build, cases, check
from tests.gpu.library import EmulatedLibrary, Library
from tests.gpu.memory import GpuMemory, HostMemory

_MOST_FAILURES = 20  # printed in full; the others are counted


def emulate(args: argparse.Namespace) -> int:
    """Checks the kernels on the emulator; returns the number of failures."""
    variant = "sanitized" if args.sanitize else "checked"
    started = time.monotonic()
    library = EmulatedLibrary(build.emulated(args.emulate, variant))
    print(f"built {library.path.name} in {time.monotonic() - started:.1f} s", flush=True)
    memory = HostMemory(library)
    failures = check_all(library, memory, cases.for_emulator(args.long))
    for case in cases.for_seeds():
        library.set_device(case.device)
        complaints = check.same_for_every_seed(library, memory, case, range(1, args.seeds + 1))
        for complaint in complaints:
            print(f"WRONG {case}: {complaint}")
        failures += bool(complaints)
    return failures


def run_on_gpu(args: argparse.Namespace, torch, arguments: Sequence[str]) -> int:
    """Checks and measures the kernels on a GPU; returns the number of failures."""
    from tests.gpu import rounds, timing

    major, minor = torch.cuda.get_device_capability()
    started = time.monotonic()
    library = Library(build.for_gpu(10 * major + minor))
    print(f"built {library.path.name} in {time.monotonic() - started:.1f} s", flush=True)
    failures = check_all(library, GpuMemory(torch), cases.for_gpu(args.long))
    if complaint := timing.check_large(library, torch):
        print(f"WRONG offsets beyond 2^31: {complaint}")
        failures += 1
    if not args.no_timing:
        rows = timing.measure(library, torch)
        print(timing.table(rows), flush=True)
        if args.output is not None:
            machine = rounds.machine(torch) | {"nvcc": build.nvcc_version()}
            args.output.write_text(timing.page(rows, machine, arguments))
    return failures


def check_all(library, memory, sweep) -> int:
    """Checks the arguments and every case of `sweep`; prints what is wrong; returns how much."""
    started = time.monotonic()
    failures = 0
    for complaint in check.check_arguments(library, memory):
        print(f"WRONG arguments: {complaint}", flush=True)
        failures += 1
    kernels: Counter[str] = Counter()
    for case, failure in check.sweep(library, memory, sweep):
        kernels[check.kernel_of(library, case)] += 1
        if failure:
            failures += 1
            if failures <= _MOST_FAILURES:
                print(f"WRONG {case} ({check.kernel_of(library, case)}):", flush=True)
                for complaint in failure:
                    print(f"    {complaint}", flush=True)
    took = ", ".join(f"{kernel}: {count}" for kernel, count in sorted(kernels.items()))
    elapsed_s = time.monotonic() - started
    print(f"{kernels.total()} cases, {failures} wrong, in {elapsed_s:.0f} s ({took})", flush=True)
    return failures
