"""Checks the CUDA kernels of the ops, and measures them where there is a GPU.

    python -m tests.gpu                          on a GPU: build with nvcc, check, measure
    python -m tests.gpu --ops embedding_bag --output PAGE.md
                                                 one op, and a page with its table
    python -m tests.gpu --emulate 800            on the emulator of a part, no GPU needed
    python -m tests.gpu --emulate 750 --sanitize the same under AddressSanitizer

The exit code is 1 if a result is wrong, 2 if the kernels could not be built.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.gpu import build, dot_interaction, rounds
from tests.gpu.embedding_bag import embedding_bag
from tests.gpu.memory import GpuMemory, HostMemory

OPS = {"dot_interaction": dot_interaction, "embedding_bag": embedding_bag}
_MOST_FAILURES = 20  # printed; the others are counted


def parse(arguments=None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), help="default: all")
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
    if args.output is not None and len(args.ops) > 1:
        parser.error("--output is the page of one op: give --ops OP too")
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
        if args.sanitize:
            _restart_with_sanitizer()
        return 1 if sum(_emulate(OPS[op], args) for op in args.ops) else 0
    torch = _torch_with_gpu()
    if torch is None:
        print(
            "There is no GPU that PyTorch can use here, so nothing was checked or measured "
            "(--emulate 800 checks the kernels without one)."
        )
        return 0
    return 1 if sum(_run_on_gpu(OPS[op], args, torch) for op in args.ops) else 0


def _emulate(op, args: argparse.Namespace) -> int:
    """Checks an op's kernels on the emulator; returns the number of failures."""
    variant = "sanitized" if args.sanitize else "checked"
    library = op.EMULATED(build.emulated(args.emulate, variant, folder=op.SOURCES))
    memory = HostMemory(library)
    failures = _count(op.checked(library, memory, args.long))
    return failures + _count(op.in_other_orders(library, memory, range(1, args.seeds + 1)))


def _run_on_gpu(op, args: argparse.Namespace, torch) -> int:
    """Checks and measures an op's kernels on a GPU; returns the number of failures."""
    major, minor = torch.cuda.get_device_capability()
    library = op.LIBRARY(build.for_gpu(10 * major + minor, op.SOURCES))
    failures = _count(op.checked(library, GpuMemory(torch), args.long))
    failures += _count([("offsets beyond 2^31", op.TIMING.check_large(library, torch))])
    if not args.no_timing:
        rows = op.TIMING.measure(library, torch)
        print(op.TIMING.table(rows), flush=True)
        if args.output is not None:
            machine = rounds.machine(torch) | {"nvcc": build.nvcc_version()}
            args.output.write_text(op.TIMING.page(rows, machine, sys.argv[1:]))
    return failures


def _count(checked: Iterable[tuple[object, list[str]]]) -> int:
    """Prints what is wrong with each case; returns how many are."""
    started, num_cases, failures = time.monotonic(), 0, 0
    for case, complaints in checked:
        num_cases += 1
        failures += bool(complaints)
        if complaints and failures <= _MOST_FAILURES:
            print(f"WRONG {case}:", *complaints, sep="\n    ", flush=True)
    elapsed_s = time.monotonic() - started
    print(f"{num_cases} cases, {failures} wrong, in {elapsed_s:.0f} s", flush=True)
    return failures


def _torch_with_gpu():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


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


if __name__ == "__main__":
    sys.exit(main())
