"""Which cores a process may use (`--affinity`): those near its GPU, not those of its neighbours.

The names are those of NVIDIA's recipes. A process's memory lies on the socket of its cores; a GPU
hangs on one socket, too, and copies from the other one's memory are slower.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runtime.hardware.gpu import Gpu

DISABLED = "disabled"


class Core(NamedTuple):
    """A logical processor.

    number: as the operating system counts.
    socket: physical package.
    core: physical core within the socket; hyper-threads share it.
    """

    number: int
    socket: int
    core: int


def choose(mode: str, cores: Sequence[Core], place: int, sockets: Sequence[int]) -> list[int]:
    """The numbers of the logical processors that a process should use.

    Args:
        mode: "socket": all of the process's socket; "socket_single": its socket's first physical
            core; "socket_single_unique": a physical core of its own; "socket_unique_interleaved" and
            "socket_unique_continuous": a share of the socket's physical cores of its own, dealt in
            turns or in runs. Where a socket has fewer physical cores than processes, they share.
        cores: those that the processes may use at all.
        place: this process among those of the machine.
        sockets: the socket of each process of the machine.
    """
    socket = sockets[place]
    own: dict[int, list[int]] = {}
    for core in cores:
        if core.socket == socket:
            own.setdefault(core.core, []).append(core.number)
    physical = [own[core] for core in sorted(own)]
    neighbours = [process for process, of in enumerate(sockets) if of == socket]
    place, count = neighbours.index(place), len(neighbours)
    if mode == "socket":
        chosen = physical
    elif mode == "socket_single":
        chosen = physical[:1]
    elif mode == "socket_single_unique" or len(physical) < count:
        chosen = [physical[place % len(physical)]]
    elif mode == "socket_unique_interleaved":
        chosen = physical[place::count]
    else:
        bounds = [len(physical) * i // count for i in range(count + 1)]
        chosen = physical[bounds[place] : bounds[place + 1]]
    return sorted(number for threads in chosen for number in threads)


def bind(mode: str, world, gpu: Gpu | None = None) -> str | None:
    """Binds this process with all its threads, and those that they will start; collective.

    Without GPUs the processes are spread over the sockets; fewer than there are sockets use all.

    Args:
        mode: `--affinity`.
        world: the ranks, `runtime.cluster.distributed.World`.
        gpu: that of this process; None if it uses none, or does not know which one it is.

    Returns:
        A sentence where that is not what was asked for.
    """
    if mode == DISABLED:
        return None
    allowed = sorted(os.sched_getaffinity(0))
    machine = Path("/proc/sys/kernel/random/boot_id")
    name = machine.read_text().strip() if machine.exists() else os.uname().nodename
    # Each knows its own GPU alone: of the others it may see none (SLURM's --gpus-per-task).
    told = world.gather_objects([name, allowed, gpu and socket_of(gpu)], "affinity")
    neighbours = [rank for rank, (where, *_) in enumerate(told) if where == name]
    if any(told[rank][1] != allowed for rank in neighbours):
        return f"--affinity {mode} is not used: whoever started the processes bound them already"
    cores = topology(allowed)
    sockets = sockets_of_processes(cores, [told[rank][2] for rank in neighbours])
    if sockets is None:
        return f"--affinity {mode} is not used: without a GPU one process may use all sockets"
    place, count = neighbours.index(world.rank), len(neighbours)
    chosen = choose(mode, cores, place, sockets)
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), chosen)
        except ProcessLookupError:  # it has ended meanwhile
            continue
    alone = mode not in ("socket", "socket_single")
    if alone and any(
        set(chosen) & set(choose(mode, cores, other, sockets))
        for other in range(count)
        if other != place
    ):
        return f"--affinity {mode}: {count} processes share {len(cores)} cores"
    return None


def sockets_of_processes(cores: Sequence[Core], of_gpus: Sequence[int | None]) -> list[int] | None:
    """The socket of each process of a machine: its GPU's; None where each should use all.

    Args:
        cores: that the processes may use.
        of_gpus: the socket of each process's GPU; None for one without, or of which it is not known.
    """
    known, count = sorted({core.socket for core in cores}), len(of_gpus)
    if None not in of_gpus:
        return [socket if socket in known else known[0] for socket in of_gpus]
    if count < len(known):
        return None
    return [known[process * len(known) // count] for process in range(count)]


def topology(numbers: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> list[Core]:
    """Socket and core of these logical processors; each its own core where Linux does not say."""

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
    """The socket that a GPU hangs on: that of the cores near it; None where Linux does not say."""
    try:
        near = (buses / gpu.address.lower() / "local_cpulist").read_text()  # like "0-15,64-79"
    except OSError:
        return None
    first = re.match(r"\d+", near)
    return topology([int(first[0])], processors)[0].socket if first else None
