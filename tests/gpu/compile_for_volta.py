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
import re
import sys
import time
from pathlib import Path

KERNELS = (
    Path(__file__).resolve().parents[2]
    / "tensorflow-dot-based-interact/tensorflow_dot_based_interact/cc/cuda"
)
_SOURCE = '#include "kernels.cuh"\n#include "plain.cuh"\n'
_PREFIX = "dot_interact::device::"
_DTYPES = ("half", "bf16", "float")
_MAX_TILES = {"Forward": (2, 4, 8), "Backward": (1, 2, 4, 8)}


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


def kernels(architecture: int) -> list[str]:
    """Names of the kernels that have a body at an architecture (compute capability x 10)."""

    def is_built(dtype: str, tensor_cores: bool) -> bool:  # as IsBuilt of tiles.cuh
        if architecture >= 80:
            return tensor_cores or dtype == "float"
        return tensor_cores == (dtype == "half")

    tiled = [
        f"{direction}Kernel<{_PREFIX}{dtype}, {str(tensor_cores).lower()}, {tiles}>"
        for direction, dtype, tensor_cores in itertools.product(_MAX_TILES, _DTYPES, (True, False))
        for tiles in _MAX_TILES[direction]
        if is_built(dtype, tensor_cores)
    ]
    plain = [
        f"Plain{direction}Kernel<{_PREFIX}{dtype}>"
        for direction, dtype in itertools.product(("Forward", "Backward"), _DTYPES)
    ]
    return [name.replace(f"<{_PREFIX}float", "<float") for name in tiled + plain]


def _usage(log: str) -> str:
    """Registers, stack and spills from ptxas' words, if there are any."""
    matches = [
        re.search(pattern, log)
        for pattern in (
            r"Used (\d+) registers",
            r"(\d+) bytes stack frame",
            r"(\d+) bytes spill stores",
        )
    ]
    if not all(matches):
        return "compiles (no report of registers)"
    registers, stack, spills = (int(match[1]) for match in matches)
    return f"{registers:3} registers, stack {stack}, spills {spills}"


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
    args = parser.parse_args(arguments)
    try:
        nvrtc = Nvrtc(args.packages)
    except FileNotFoundError as error:
        parser.error(f"--packages: {error}")
    options = [
        f"--gpu-architecture=sm_{args.architecture}",
        *("--std=c++17", "--ptxas-options=-v"),
        f"--include-path={KERNELS}",
        f"--include-path={nvrtc.headers}",
    ]
    print(f"NVRTC {nvrtc.version()}, sm_{args.architecture}")
    names = [name for name in kernels(args.architecture) if args.kernels in name]
    if not names:
        parser.error(f"--kernels {args.kernels!r}: no kernel's name holds it")
    started = time.monotonic()
    failures = 0
    for name in names:
        try:
            size_bytes, log = nvrtc.compile(_SOURCE, _PREFIX + name, options)
        except RuntimeError as error:
            failures += 1
            print(f"{name}: ERROR\n{error}")
            continue
        print(f"{name.replace(_PREFIX, ''):38} {_usage(log)}, {size_bytes} bytes", flush=True)
        if warnings := [line for line in log.splitlines() if "warning" in line]:
            failures += 1
            print("\n".join(warnings))
    elapsed_s = time.monotonic() - started
    print(f"{len(names)} kernels, {failures} with errors or warnings, in {elapsed_s:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
