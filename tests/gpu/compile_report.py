"""Compiles the kernels for all architectures, without a GPU, and reports registers and spills.

    python -m tests.gpu.compile_report                    architectures that nvcc knows
    python -m tests.gpu.compile_report --packages FOLDER  7.0 too, as compile_for_volta
    python -m tests.gpu.compile_report --output PAGE.md   writes a page

The exit code is 1 if the compiler warns.
"""

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.gpu import build
from tests.gpu.compile_for_volta import OPS, Nvrtc, compile_kernel
from tests.gpu.ptxas import Usage, readable, usages

# As the packages' makefiles: Volta, Turing, Ampere (A100, A10), Ada, Hopper, Blackwell (B200, RTX).
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
_OPTIMIZERS = ("SGD", "Adagrad", "row-wise Adagrad", "Adam")


class Compiled(NamedTuple):
    """The kernels of one architecture."""

    usages: dict[str, Usage]  # by kernel
    warnings: list[str]
    elapsed_s: float
    size_bytes: int | None  # of all kernels together


def compile_for(op: str, architecture: int) -> Compiled:
    """Compiles by nvcc.

    Raises:
      BuildError: no nvcc, or it refuses the code.
    """
    folder = OPS[op].folder
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "kernels.cubin"
        command = [build.find_nvcc(), "-std=c++17", "-O3", f"-arch=sm_{architecture}", "-cubin"]
        command += ["-Xptxas=-v", str(folder / "launch.cu"), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise build.BuildError(done.stderr)
        size_bytes = target.stat().st_size
    symbols = usages(done.stderr)
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    by_name = dict(zip(readable(symbols), symbols.values(), strict=True))
    return Compiled(by_name, warnings, time.monotonic() - started, size_bytes)


def compile_by_nvrtc(op: str, nvrtc: Nvrtc, architecture: int) -> Compiled:
    """Compiles the op's own kernels one by one."""
    started = time.monotonic()
    by_name, warnings = {}, []
    for name in OPS[op].names(architecture):
        _, log = compile_kernel(nvrtc, OPS[op], architecture, name)
        warnings += [line for line in log.splitlines() if "warning" in line]
        symbols = usages(log)
        by_name.update(zip(readable(symbols), symbols.values(), strict=True))
    return Compiled(by_name, warnings, time.monotonic() - started, None)


def family(kernel: str) -> str:
    """Returns the line of the table that a kernel belongs to."""
    if "radix_sort" in kernel or "EmptyKernel" in kernel or "cub::" in kernel:
        return "sort (CUB)"
    names = {"__half": "float16", "__nv_bfloat16": "bfloat16", "signed char": "int8"}
    for name, dtype in names.items():
        kernel = kernel.replace(name, dtype)
    if match := re.fullmatch(r"ForwardKernel<(\w+), \w+, (\d+), (\d)>", kernel):
        one_id = ", one id" if match[3] == "1" else ""
        return f"lookup, {match[1]} table, vectors of {match[2]}{one_id}"
    if match := re.fullmatch(r"OtherRowsKernel<\w+, (\d)>", kernel):
        return f"other rows, Adam, vectors of {match[1]}"
    if match := re.fullmatch(
        r"ReduceKernel<(\w+).*, Optimizer<\w+, (?:\(int\))?(\d)>, (\d)>", kernel
    ):
        optimizer = _OPTIMIZERS[int(match[2])]
        return f"{_source(match[1])}, {optimizer}, vectors of {match[3]}"
    if match := re.fullmatch(r"ReduceKernel<(\w+).*, RowList, (\d)>", kernel):
        return f"{_source(match[1])}, list of rows, vectors of {match[2]}"
    return kernel


def _source(name: str) -> str:
    return "sums of pieces" if name == "PieceSource" else "sums of partial sums"


def table(compiled: dict[int, Compiled]) -> str:
    """Markdown: the most registers of a line's kernels, and their spilled bytes where there are."""
    lines: dict[str, dict[int, list[Usage]]] = {}
    for architecture, kernels in compiled.items():
        for kernel, usage in kernels.usages.items():
            lines.setdefault(family(kernel), {}).setdefault(architecture, []).append(usage)
    rows = [["kernels", "number", *(f"{a / 10:.1f}" for a in compiled)]]
    rows.append(["---", *["---:"] * (len(compiled) + 1)])
    for name in sorted(lines):
        cells = [_cell(lines[name].get(architecture, [])) for architecture in compiled]
        number = max(len(kernels) for kernels in lines[name].values())
        rows.append([f"`{name}`" if "<" in name else name, str(number), *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(kernels: list[Usage]) -> str:
    if not kernels:
        return ""
    spill_bytes = max(usage.spill_bytes for usage in kernels)
    spilled = f", {spill_bytes} spilled" if spill_bytes else ""
    return f"{max(usage.registers for usage in kernels)}{spilled}"


def page(op: str, compiled: dict[int, Compiled], compilers: str) -> str:
    """A dated page of results for benchmarks/results."""
    packages = " --packages PACKAGES" if 70 in compiled else ""
    numbers = "\n".join(
        f"| {architecture / 10:.1f} | {len(c.usages)} | {len(c.warnings)} | {c.elapsed_s:.0f} "
        f"| {'' if c.size_bytes is None else f'{c.size_bytes / 2**20:.1f}'} |"
        for architecture, c in compiled.items()
    )
    return f"""# The CUDA kernels of {op}, compiled

`python -m tests.gpu.compile_report --op {op}{packages} --output PAGE`

- date: {datetime.date.today().isoformat()}
- {compilers}
- compiled only: no GPU was used

## Registers

The most registers per thread of each line's kernels, by compute capability, and the most bytes that
one of them spills; a vector of n numbers is loaded and stored at once. Blocks have 256 threads; 64
registers leave room for 4 of them, 1,024 threads, on a multiprocessor.

{table(compiled)}

## Compilation

| compute capability | kernels | warnings | seconds, next to other work | code, MiB |
| --- | ---: | ---: | ---: | ---: |
{numbers}
"""


def main(arguments=None) -> int:
    """Compiles what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--op", choices=OPS, default="embedding_bag", help="default: %(default)s")
    parser.add_argument("--packages", type=Path, help="folder with NVRTC, for 7.0")
    parser.add_argument("--output", type=Path, help="write a page")
    args = parser.parse_args(arguments)
    compiled = {}
    compilers = build.nvcc_version()
    if args.packages is not None:
        nvrtc = Nvrtc(args.packages)
        compiled[70] = compile_by_nvrtc(args.op, nvrtc, 70)
        compilers += f"; 7.0 by NVRTC {nvrtc.version()}, without the sort"
    for architecture in ARCHITECTURES:
        compiled[architecture] = compile_for(args.op, architecture)
        result = compiled[architecture]
        print(
            f"sm_{architecture}: {len(result.usages)} kernels, {result.elapsed_s:.0f} s", flush=True
        )
    print(table(compiled))
    warnings = [line for result in compiled.values() for line in result.warnings]
    print("\n".join(warnings))
    if args.output is not None:
        args.output.write_text(page(args.op, compiled, compilers))
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
