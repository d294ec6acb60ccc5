"""Shared libraries of the CUDA kernels: by nvcc for a GPU, by g++ on the emulator.

Libraries lie in `build/` under a name that holds a hash of everything they are made of, so that a
second call returns at once.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A folder of kernels: NAME.h is their interface, cuda/launch.cu all of their code, and NAME_EMULATE
# makes that the emulator's.
SOURCES = HERE.parents[1] / "tensorflow-dot-based-interact/tensorflow_dot_based_interact/cc"
BAG_SOURCES = HERE.parents[1] / "distributed-embeddings/kernels/distributed_embeddings_kernels/cc"
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
    architecture: int,
    variant: str = "checked",
    sources: Sequence[Path] | None = None,
    folder: Path | None = None,
) -> Path:
    """The kernels for the emulator.

    Args:
      architecture: compute capability x 100, one of ARCHITECTURES.
      variant: one of VARIANTS.
      sources: other kernels than the repository's, for tests of the emulator itself.
      folder: of kernels; default SOURCES.

    Raises:
      ValueError: another architecture or variant.
      BuildError: no g++, or it refuses the code.
    """
    if architecture not in ARCHITECTURES or variant not in VARIANTS:
        raise ValueError(
            f"the emulator is built for {ARCHITECTURES} as {VARIANTS}, "
            f"not for {architecture} as {variant!r}"
        )
    folder = folder or SOURCES
    package = _name(folder)
    kernels = [folder / "cuda/launch.cu"] if sources is None else list(sources)
    machine = sorted(EMULATOR.glob("*.cc"))
    flags = [
        *_COMMON_FLAGS,
        *(f"-DDI_ARCH={architecture}", f"-D{package.upper()}_EMULATE"),
        *(f"-I{EMULATOR}", f"-I{folder}"),
        *(_SANITIZE if variant == "sanitized" else []),
        *(["-DDOT_INTERACT_CHECKED"] if variant == "checked" else []),
    ]
    kernel_flags = _CHECKED_KERNELS if variant == "checked" else []
    if folder == BAG_SOURCES:
        kernel_flags = [*kernel_flags, "-O1"]  # many kernels, few threads: the build takes longer
    compiler = os.environ.get("CXX", "g++")
    name = "emulated" if sources is None else kernels[0].stem
    read = [*kernels, *machine, *sorted(EMULATOR.glob("*.h")), *_kernel_headers(folder)]
    name = f"lib{package}_{name}_{architecture}_{variant}"
    output = _output(name, read, compiler, [*flags, *kernel_flags])
    with _alone():
        if output.exists():
            output.touch()
            return output
        sources_flags = {source: [] for source in machine} | dict.fromkeys(kernels, kernel_flags)
        _build(output, compiler, flags, sources_flags)
    return output


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Other processes, as those of parallel tests, wait for the build that they need as well."""
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(
    output: Path, compiler: str, flags: Sequence[str], sources: dict[Path, Sequence[str]]
) -> None:
    """Compiles sources, each with its own flags too, and links them."""
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:

        def compile_source(source: Path) -> str:
            object_file = f"{scratch}/{source.stem}.o"
            command = [compiler, *flags, *sources[source], "-x", "c++", "-c", str(source)]
            _run([*command, "-o", object_file])
            return object_file

        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(compile_source, sources))
        library = f"{scratch}/library.so"
        link = _SANITIZE if set(_SANITIZE) <= set(flags) else []
        _run([compiler, "-shared", *link, *objects, "-o", library])
        os.replace(library, output)


def for_gpu(compute_capability: int, folder: Path | None = None) -> Path:
    """The kernels by nvcc alone.

    Args:
      compute_capability: of the card, x 10 (90 for 9.0).
      folder: of kernels; default SOURCES.

    Raises:
      BuildError: no nvcc, or it refuses the code.
    """
    nvcc = find_nvcc()
    folder = folder or SOURCES
    flags = ["-std=c++17", "-O3", f"-arch=sm_{compute_capability}", f"-I{folder}"]
    flags += ["-shared", "-Xcompiler=-fPIC", "--threads=0"]
    source = folder / "cuda/launch.cu"
    name = f"lib{_name(folder)}_sm{compute_capability}"
    output = _output(name, [source, *_kernel_headers(folder)], nvcc, flags)
    if not output.exists():
        partial = output.with_suffix(f".{os.getpid()}.so")
        _run([nvcc, *flags, str(source), "-o", str(partial)])
        os.replace(partial, output)
    return output


def nvcc_version() -> str:
    """The release of the nvcc that `for_gpu` takes."""
    return _run([find_nvcc(), "--version"]).strip().splitlines()[-1]


def find_nvcc() -> str:
    """The path of nvcc.

    Raises:
      BuildError: it is neither on the PATH nor in CUDA_HOME.
    """
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


def _name(folder: Path) -> str:
    if (header := next(folder.glob("*.h"), None)) is None:
        raise BuildError(f"{folder} holds no interface NAME.h for cuda/launch.cu")
    return header.stem


def _kernel_headers(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.h"), *folder.glob("cuda/*.cuh")])


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
