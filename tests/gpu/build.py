"""Shared libraries of the CUDA kernels: by nvcc for a GPU, by g++ on the emulator.

Libraries lie in `build/` under a name that holds a hash of everything they are made of, so that a
second call returns at once.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "tensorflow-dot-based-interact/tensorflow_dot_based_interact/cc"
EMULATOR = HERE / "emulator"
BUILD = HERE / "build"

ARCHITECTURES = (700, 750, 800)  # compute capability x 100: those that the kernels distinguish
# checked: every access to memory is checked. sanitized: AddressSanitizer and
# UndefinedBehaviorSanitizer. fast: neither.
VARIANTS = ("checked", "sanitized", "fast")

_COMMON_FLAGS = [
    *("-std=c++17", "-O2", "-g1", "-fPIC", "-Wall", "-Wextra", "-fvisibility=default"),
    # As with nvcc: reinterpret_cast of shared memory is not optimized as undefined behaviour.
    "-fno-strict-aliasing",
    # Sums are rounded after each product, whatever the processor.
    "-ffp-contract=off",
]
_SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1"]
# The compiler calls memory.cc's functions before each access; the linker does not get these flags,
# so that it does not link the sanitizers' own runtimes.
_CHECKED_KERNELS = [
    *("-fsanitize=thread,alignment", "--param=tsan-instrument-func-entry-exit=0"),
    "-fno-tree-vectorize",
]
_KEPT_S = 24 * 3600.0


class BuildError(Exception):
    """A compiler is missing or failed; the text holds its output."""


def emulated(
    architecture: int, variant: str = "checked", sources: Sequence[Path] | None = None
) -> Path:
    """The kernels for the emulator.

    Args:
      architecture: compute capability x 100, one of ARCHITECTURES.
      variant: one of VARIANTS.
      sources: other kernels than the repository's, for tests of the emulator itself.

    Raises:
      ValueError: another architecture or variant.
      BuildError: no g++, or it refuses the code.
    """
    if architecture not in ARCHITECTURES or variant not in VARIANTS:
        raise ValueError(
            f"the emulator is built for {ARCHITECTURES} as {VARIANTS}, "
            f"not for {architecture} as {variant!r}"
        )
    kernels = [SOURCES / "cuda/launch.cu"] if sources is None else list(sources)
    machine = sorted(EMULATOR.glob("*.cc"))
    flags = [
        *_COMMON_FLAGS,
        *(f"-DDI_ARCH={architecture}", "-DDOT_INTERACT_EMULATE", f"-I{EMULATOR}", f"-I{SOURCES}"),
        *(_SANITIZE if variant == "sanitized" else []),
        *(["-DDOT_INTERACT_CHECKED"] if variant == "checked" else []),
    ]
    kernel_flags = _CHECKED_KERNELS if variant == "checked" else []
    compiler = os.environ.get("CXX", "g++")
    name = "emulated" if sources is None else kernels[0].stem
    read = [*kernels, *machine, *EMULATOR.glob("*.h"), *_kernel_headers()]
    output = _output(f"libdot_interact_{name}_{architecture}_{variant}", read, compiler, flags)
    if output.exists():
        output.touch()
        return output
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        objects = []
        for source, extra in [(s, kernel_flags) for s in kernels] + [(s, []) for s in machine]:
            objects.append(f"{folder}/{source.stem}.o")
            _run([compiler, *flags, *extra, "-x", "c++", "-c", str(source), "-o", objects[-1]])
        library = f"{folder}/library.so"
        link = _SANITIZE if variant == "sanitized" else []
        _run([compiler, "-shared", *link, *objects, "-o", library])
        os.replace(library, output)
    return output


def for_gpu(compute_capability: int) -> Path:
    """The kernels by nvcc alone.

    Args:
      compute_capability: of the card, x 10 (90 for 9.0).

    Raises:
      BuildError: no nvcc, or it refuses the code.
    """
    nvcc = _nvcc()
    flags = ["-std=c++17", "-O3", f"-arch=sm_{compute_capability}", f"-I{SOURCES}"]
    flags += ["-shared", "-Xcompiler=-fPIC", "--threads=0"]
    source = SOURCES / "cuda/launch.cu"
    output = _output(
        f"libdot_interact_sm{compute_capability}", [source, *_kernel_headers()], nvcc, flags
    )
    if not output.exists():
        partial = output.with_suffix(f".{os.getpid()}.so")
        _run([nvcc, *flags, str(source), "-o", str(partial)])
        os.replace(partial, output)
    return output


def nvcc_version() -> str:
    """The release of the nvcc that `for_gpu` takes."""
    return _run([_nvcc(), "--version"]).strip().splitlines()[-1]


def _nvcc() -> str:
    if compiler := shutil.which("nvcc"):
        return compiler
    installed = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    if installed.exists():
        return str(installed)
    raise BuildError("nvcc is not on the PATH (CUDA_HOME/bin has it where CUDA is installed)")


def preloaded_sanitizer() -> str:
    """The AddressSanitizer runtime that Python must be started with, for LD_PRELOAD."""
    compiler = os.environ.get("CXX", "g++")
    paths = [
        _run([compiler, f"-print-file-name={name}"]).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if missing := [path for path in paths if not os.path.isabs(path)]:
        raise BuildError(f"{compiler} has no {', '.join(missing)}: install its sanitizers")
    return " ".join(os.path.realpath(path) for path in paths)


def _kernel_headers() -> list[Path]:
    return sorted([*SOURCES.glob("*.h"), *SOURCES.glob("cuda/*.cuh")])


def _output(name: str, read: Sequence[Path], compiler: str, flags: Sequence[str]) -> Path:
    contents = hashlib.sha256()
    contents.update("\0".join([_run([compiler, "--version"]), *flags]).encode())
    for path in read:
        if not path.exists():
            raise BuildError(f"{path} is not there")
        contents.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    BUILD.mkdir(exist_ok=True)
    for old in BUILD.glob(f"{name}_*.so"):
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink(missing_ok=True)
    return BUILD / f"{name}_{contents.hexdigest()[:12]}.so"


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not on the PATH") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    return done.stdout
