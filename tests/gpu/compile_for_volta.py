"""Compiles the CUDA kernels for compute capability 7.0 with NVRTC, without a GPU or a CUDA toolkit.

CUDA 13's nvcc no longer knows 7.0; NVRTC 12 does, and PyPI has it:

    pip install --no-deps --target PACKAGES 'nvidia-cuda-nvrtc-cu12==12.2.*' \\
        'nvidia-cuda-runtime-cu12==12.2.*'
    python -m tests.gpu.compile_for_volta --packages PACKAGES

Prints one line a kernel: registers, bytes of stack, and bytes that registers spill. The exit code
is 1 if a kernel does not compile, or with a warning.
"""

import argparse
import ctypes
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.gpu import build
from tests.gpu.ptxas import usages

_DTYPES = ("half", "bf16", "float")
_MAX_TILES = {"Forward": (2, 4, 8), "Backward": (1, 2, 4, 8)}


class Op(NamedTuple):
    """The kernels of an op."""

    folder: Path
    headers: tuple[str, ...]
    namespace: str
    names: Callable[[int], list[str]]  # of the kernels that an architecture has


class Nvrtc:
    """The used functions of libnvrtc, by ctypes."""

    def __init__(self, packages: Path):
        libraries = sorted(packages.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*"))
        headers = packages / "nvidia/cuda_runtime/include"
        if not libraries or not (headers / "cuda_fp16.h").exists():
            raise FileNotFoundError(
                f"{packages} holds no nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12: "
                "install both there with pip install --target"
            )
        self.headers = headers
        self._library = ctypes.CDLL(str(libraries[0]))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, kernel: str, options: list[str]) -> tuple[int, str]:
        """Instantiates one kernel; returns the size of its code in bytes and the compiler's log.

        Raises:
          RuntimeError: it does not compile; the text is the log.
        """
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            *(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None),
        )
        try:
            self._call("nvrtcAddNameExpression", program, kernel.encode())
            arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            result = self._library.nvrtcCompileProgram(program, len(options), arguments)
            log = self._text(program, "nvrtcGetProgramLog")
            if result != 0:
                raise RuntimeError(log)
            size = ctypes.c_size_t()
            self._call("nvrtcGetCUBINSize", program, ctypes.byref(size))
            return size.value, log
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, name: str) -> str:
        size = ctypes.c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(name, program, text)
        return text.value.decode()

    def _call(self, name: str, *arguments) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {self._library.nvrtcGetErrorString(result).decode()}")


def dot_interaction_kernels(architecture: int) -> list[str]:
    """Names of the kernels that have a body at an architecture (compute capability x 10)."""

    def is_built(dtype: str, tensor_cores: bool) -> bool:  # as IsBuilt of tiles.cuh
        if architecture >= 80:
            return tensor_cores or dtype == "float"
        return tensor_cores == (dtype == "half")

    tiled = [
        f"{direction}Kernel<{dtype}, {str(tensor_cores).lower()}, {tiles}>"
        for direction, dtype, tensor_cores in itertools.product(_MAX_TILES, _DTYPES, (True, False))
        for tiles in _MAX_TILES[direction]
        if is_built(dtype, tensor_cores)
    ]
    plain = [
        f"Plain{direction}Kernel<{dtype}>"
        for direction, dtype in itertools.product(("Forward", "Backward"), _DTYPES)
    ]
    return tiled + plain


def embedding_bag_kernels(_: int) -> list[str]:
    """Names of the kernels of launch.cu; the sort's are the toolkit's."""
    widest = {"half": 8, "bf16": 8, "float": 4, "signed char": 16}
    rows_ahead = {"half": 4, "bf16": 4, "float": 4, "signed char": 2}
    names = ["CountRunsKernel", "AddRunsKernel", "WriteRunsKernel"]
    names += [f"ExpandKernel<{payload}>" for payload in ("BagNumber", "WeightedBag")]
    names += [
        f"ForwardKernel<{table}, {output}, {count}, {rows}>"
        for table, output in itertools.product(widest, _DTYPES)
        for count in sorted({1, 4, widest[table]})
        for rows in ([1] if count == widest[table] else []) + [rows_ahead[table]]
    ]
    kinds = ("kSgd", "kAdagrad", "kRowWiseAdagrad", "kAdam")
    optimizers = [f"Optimizer<{t}, {kind}>" for t, kind in itertools.product(_DTYPES, kinds)]
    sinks = [*optimizers, "RowList"]
    sources = [f"PieceSource<{gradient}>" for gradient in _DTYPES] + ["PartialSource"]
    for count in (1, 4):
        names += [
            f"ReduceKernel<{source}, {sink}, {count}>"
            for source, sink in itertools.product(sources, sinks)
        ]
        names += [f"OtherRowsKernel<{dtype}, {count}>" for dtype in _DTYPES]
    names += [
        f"ReduceKernel<PieceSource<{gradient}>, {sink}, 8>"
        for gradient, sink in itertools.product(("half", "bf16"), sinks)
        if "float" not in sink
    ]
    return names


OPS = {
    "dot_interaction": Op(
        build.SOURCES / "cuda",
        ("kernels.cuh", "plain.cuh"),
        "dot_interact::device",
        dot_interaction_kernels,
    ),
    "embedding_bag": Op(
        build.BAG_SOURCES / "cuda",
        ("forward.cuh", "reduce.cuh"),
        "embedding_bag::device",
        embedding_bag_kernels,
    ),
}
# NVRTC has the functions of these headers, but not the headers.
_HEADERS = {
    "stdint.h": "using int8_t = signed char; using int32_t = int; using int64_t = long long;\n"
    "using uint8_t = unsigned char; using uint16_t = unsigned short;\n"
    "using uint32_t = unsigned int; using uint64_t = unsigned long long;\n"
    "using uintptr_t = unsigned long long;\n",
    "string.h": "",
}


def compile_kernel(nvrtc: Nvrtc, op: Op, architecture: int, name: str) -> tuple[int, str]:
    """Compiles one kernel; returns the size of its code in bytes and the compiler's log.

    Raises:
      RuntimeError: it does not compile; the text is the log.
    """
    source = "".join(f'#include "{header}"\n' for header in op.headers)
    source += f"using namespace {op.namespace};\n"
    with tempfile.TemporaryDirectory() as headers:
        for header, text in _HEADERS.items():
            (Path(headers) / header).write_text(text)
        folders = (op.folder, headers, nvrtc.headers)
        options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17", "--ptxas-options=-v"]
        options += [f"--include-path={folder}" for folder in folders]
        return nvrtc.compile(source, name, options)


def _text_of_usage(log: str, name: str) -> str:
    base = name.partition("<")[0]
    for symbol, usage in usages(log).items():
        if base in symbol:
            return (
                f"{usage.registers:3} registers, stack {usage.stack_bytes}, "
                f"spills {usage.spill_bytes}"
            )
    return "compiles (no report of registers)"


def main(arguments=None) -> int:
    """Compiles what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder with both packages")
    parser.add_argument(
        "--architecture", type=int, default=70, help="compute capability x 10 (default: 70)"
    )
    parser.add_argument("--kernels", default="", help="only names that hold this text")
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), help="default: all")
    args = parser.parse_args(arguments)
    try:
        nvrtc = Nvrtc(args.packages)
    except FileNotFoundError as error:
        parser.error(f"--packages: {error}")
    print(f"NVRTC {nvrtc.version()}, sm_{args.architecture}")
    started = time.monotonic()
    num_kernels = failures = 0
    for op in args.ops:
        names = [n for n in OPS[op].names(args.architecture) if args.kernels in n]
        num_kernels += len(names)
        failures += _compile(nvrtc, OPS[op], args.architecture, names)
    if num_kernels == 0:
        parser.error(f"--kernels {args.kernels!r}: no kernel's name holds it")
    elapsed_s = time.monotonic() - started
    print(f"{num_kernels} kernels, {failures} with errors or warnings, in {elapsed_s:.0f} s")
    return 1 if failures else 0


def _compile(nvrtc: Nvrtc, op: Op, architecture: int, names: list[str]) -> int:
    """Compiles the kernels, prints a line for each, and returns the number that failed."""
    failures = 0
    for name in names:
        try:
            size_bytes, log = compile_kernel(nvrtc, op, architecture, name)
        except RuntimeError as error:
            failures += 1
            print(f"{name}: ERROR\n{error}")
            continue
        print(f"{name:38} {_text_of_usage(log, name)}, {size_bytes} bytes", flush=True)
        if warnings := [line for line in log.splitlines() if "warning" in line]:
            failures += 1
            print("\n".join(warnings))
    return failures


if __name__ == "__main__":
    sys.exit(main())
