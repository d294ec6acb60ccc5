"""Memory bandwidth of this machine, by a C++ program that is compiled for it."""

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("memory_bandwidth.cc")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-pthread")
PASSES = 7
NUM_RANDOM_ROWS = 1_000_000


class Bandwidth(NamedTuple):
    """GB/s (10^9 bytes) of every pass."""

    triad: list[float]  # STREAM's a = b + 3 c
    random_rows: list[float]  # of a table larger than the caches
    same_rows: list[float]  # the rows of the batches


def compile_program(folder: Path) -> Path:
    """Returns the program.

    Raises:
        RuntimeError: no g++, or it refuses the code.
    """
    program = folder / "memory_bandwidth"
    try:
        done = subprocess.run(
            ["g++", *FLAGS, str(SOURCE), "-o", str(program)],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise RuntimeError(f"g++ is missing: install it to compile {SOURCE.name}") from None
    if done.returncode:
        raise RuntimeError(f"g++ does not compile {SOURCE.name}:\n{done.stderr}")
    return program


def measure(
    program: Path, ids: np.ndarray, num_rows: int, dim: int, threads: int, size_mib: int
) -> Bandwidth:
    """Measures reads of rows of [num_rows, dim] float32, which are added up in registers.

    Args:
        program: that of `compile_program`.
        ids: int32 row numbers of the batches.
        size_mib: of each array of the triad, and at least that of the table with random rows: more
            than the last-level cache.

    Raises:
        RuntimeError: the program fails, as without memory.
    """

    def run(*arguments) -> list[float]:
        words = [str(program), str(threads), str(PASSES), *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit status {done.returncode}: {done.stderr}")
        return [float(line) for line in done.stdout.splitlines()]

    def rows(count: int, numbers: np.ndarray) -> list[float]:
        with tempfile.NamedTemporaryFile() as file:
            numbers.astype(np.int32).tofile(file.name)
            return run("rows", count, dim, file.name)

    large = max(num_rows, size_mib * 2**20 // (4 * dim))
    random = np.random.default_rng(4).integers(0, large, NUM_RANDOM_ROWS)
    return Bandwidth(run("triad", size_mib), rows(large, random), rows(num_rows, ids))
