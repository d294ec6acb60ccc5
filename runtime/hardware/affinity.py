"""CPU affinity of a process (`--affinity`): cores near its GPU and not used by its neighbours.

The modes have the names of NVIDIA's recipes. A process's memory is on the socket of its cores, and
copies from another socket's memory to a GPU are slower.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distributed_embeddings.collectives import World

from runtime.hardware.gpu import Gpu

DISABLED = "disabled"


class Core(NamedTuple):
    """A logical processor."""

    number: int
    socket: int
    core: int  # physical core within the socket; hyper-threads share it


def choose(mode: str, cores: Sequence[Core], index: int, sockets: Sequence[int]) -> list[int]:
    """Returns the numbers of the logical processors that a process should use.

    Args:
        mode: "socket": all of the process's socket; "socket_single": its socket's first physical
            core; "socket_single_unique": a physical core of its own; "socket_unique_interleaved"
            and "socket_unique_continuous": a share of its own of the socket's physical cores,
            assigned round-robin or in contiguous blocks. If a socket has fewer physical cores than
            processes, they share.
        cores: those that the processes may use.
        index: of this process in `sockets`, the socket of each process of the machine.
    """
    socket = sockets[index]
    by_core: dict[int, list[int]] = {}
    for core in cores:
        if core.socket == socket:
            by_core.setdefault(core.core, []).append(core.number)
    physical = [by_core[core] for core in sorted(by_core)]
    neighbours = [process for process, other in enumerate(sockets) if other == socket]
    position, count = neighbours.index(index), len(neighbours)
    if mode == "socket":
        chosen = physical
    elif mode == "socket_single":
        chosen = physical[:1]
    elif mode == "socket_single_unique" or len(physical) < count:
        chosen = [physical[position % len(physical)]]
    elif mode == "socket_unique_interleaved":
        chosen = physical[position::count]
    else:
        bounds = [len(physical) * i // count for i in range(count + 1)]
        chosen = physical[bounds[position] : bounds[position + 1]]
    return sorted(number for threads in chosen for number in threads)


def bind(mode: str, world: World, gpu: Gpu | None = None) -> str | None:
    """Binds this process with all its threads, and those that they start; a collective.

    Without GPUs the processes are spread over the sockets; fewer than the sockets use all. Returns
    a warning if the result is not the requested one.
    """
    if mode == DISABLED:
        return None
    allowed = sorted(os.sched_getaffinity(0))
    machine = Path("/proc/sys/kernel/random/boot_id")
    name = machine.read_text().strip() if machine.exists() else os.uname().nodename
    # A process knows only its own GPU and may not see others (SLURM's --gpus-per-task).
    by_rank = world.gather_objects([name, allowed, gpu and socket_of(gpu)], "affinity")
    neighbours = [rank for rank, (host, *_) in enumerate(by_rank) if host == name]
    if any(by_rank[rank][1] != allowed for rank in neighbours):
        return f"--affinity {mode} is not used: the launcher of the processes bound them already"
    cores = topology(allowed)
    sockets = sockets_of_processes(cores, [by_rank[rank][2] for rank in neighbours])
    if sockets is None:
        return f"--affinity {mode} is not used: without a GPU one process may use all sockets"
    index, count = neighbours.index(world.rank), len(neighbours)
    chosen = choose(mode, cores, index, sockets)
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), chosen)
        except ProcessLookupError:  # it has ended
            continue
    alone = mode not in ("socket", "socket_single")
    if alone and any(
        set(chosen) & set(choose(mode, cores, other, sockets))
        for other in range(count)
        if other != index
    ):
        return f"--affinity {mode}: {count} processes share {len(cores)} cores"
    return None


def sockets_of_processes(
    cores: Sequence[Core], gpu_sockets: Sequence[int | None]
) -> list[int] | None:
    """Returns the socket of each process of a machine: its GPU's; None if each should use all.

    `gpu_sockets` has the socket of each process's GPU; None without a GPU, or if it is not known.
    """
    known, count = sorted({core.socket for core in cores}), len(gpu_sockets)
    gpus = [socket for socket in gpu_sockets if socket is not None]
    if len(gpus) == count:
        return [socket if socket in known else known[0] for socket in gpus]
    if count < len(known):
        return None
    return [known[process * len(known) // count] for process in range(count)]


def topology(numbers: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> list[Core]:
    """Returns socket and core of logical processors; each is its own core if Linux reports none."""

    def read(number: int, name: str, otherwise: int) -> int:
        try:
            return int((root / f"cpu{number}" / "topology" / name).read_text())
        except (OSError, ValueError):
            return otherwise

    return [
        Core(
            number,
            read(number, "physical_package_id", 0),
            # Core numbers may repeat on the dies of a socket.
            (read(number, "die_id", 0) << 16) + read(number, "core_id", number),
        )
        for number in numbers
    ]


def socket_of(
    gpu: Gpu,
    buses: Path = Path("/sys/bus/pci/devices"),
    processors: Path = Path("/sys/devices/system/cpu"),
) -> int | None:
    """Returns the socket of the cores near a GPU; None if Linux does not report them."""
    try:
        near = (buses / gpu.address.lower() / "local_cpulist").read_text()  # like "0-15,64-79"
    except OSError:
        return None
    first = re.match(r"\d+", near)
    return topology([int(first[0])], processors)[0].socket if first else None
