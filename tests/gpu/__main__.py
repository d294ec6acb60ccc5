"""Checks the CUDA kernels of the dot interaction, and measures them where there is a GPU.

    python -m tests.gpu                          on a GPU: build with nvcc, check, measure
    python -m tests.gpu --output PAGE.md         the same, and a page with the table
    python -m tests.gpu --emulate 800            on the emulator of a part, no GPU needed
    python -m tests.gpu --emulate 750 --sanitize the same under AddressSanitizer

The exit code is 1 if a result is wrong, 2 if the kernels could not be built.
"""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.gpu import build, cases, check
from tests.gpu.library import EmulatedLibrary, Library
from tests.gpu.memory import GpuMemory, HostMemory

_MOST_FAILURES = 20  # printed in full; the others are counted


def parse(arguments=None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--emulate",
        type=int,
        choices=build.ARCHITECTURES,
        metavar="ARCH",
        help="check on the emulator of compute capability 7.0 (700), 7.5 (750) or 8.0 on (800)",
    )
    parser.add_argument("--long", action="store_true", help="check more sizes in more styles")
    parser.add_argument("--sanitize", action="store_true", help="emulator: AddressSanitizer, UBSan")
    parser.add_argument("--seeds", type=int, default=3, help="emulator: orders of threads to try")
    parser.add_argument("--no_timing", action="store_true", help="GPU: check only")
    parser.add_argument("--output", type=Path, help="GPU: write the measurements to this page")
    args = parser.parse_args(arguments)
    if args.emulate is None and args.sanitize:
        parser.error("--sanitize is for the emulator: give --emulate ARCH too")
    return args


def main(arguments=None) -> int:
    """Runs what the command line asks for; returns the exit code."""
    args = parse(arguments)
    try:
        return _run(args)
    except build.BuildError as error:
        print(f"The kernels could not be built: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    if args.emulate is not None:
        return _on_emulator(args)
    torch = _torch_with_gpu()
    if torch is None:
        print(
            "There is no GPU that PyTorch can use here, so nothing was checked or measured "
            "(--emulate 800 checks the kernels without one)."
        )
        return 0
    return _on_gpu(args, torch)


def _torch_with_gpu():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _on_emulator(args: argparse.Namespace) -> int:
    if args.sanitize:
        _restart_with_sanitizer()
    started = time.monotonic()
    variant = "sanitized" if args.sanitize else "checked"
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
    return 1 if failures else 0


def _restart_with_sanitizer() -> None:
    """AddressSanitizer has to be in the process from its start."""
    preload = build.preloaded_sanitizer()
    if os.environ.get("LD_PRELOAD") == preload:
        return
    environment = os.environ | {
        "LD_PRELOAD": preload,
        # Python frees little at its end; its allocator would hide overruns of small arrays.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "tests.gpu", *sys.argv[1:]], environment)


def _on_gpu(args: argparse.Namespace, torch) -> int:
    from tests.gpu import timing

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
            machine = timing.machine(torch) | {"nvcc": build.nvcc_version()}
            args.output.write_text(timing.page(rows, machine, sys.argv[1:]))
    return 1 if failures else 0


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


if __name__ == "__main__":
    sys.exit(main())
