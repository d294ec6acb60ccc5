"""Which cores a process may use (`--affinity`): those near its GPU, not those of its neighbours.

The names are those of NVIDIA's recipes. A process's memory lies on the socket of its cores; a GPU
hangs on one socket, too, and copies from the other one's memory are slower.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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


def choose(mode: str, cores: Sequence[Core], local_rank: int, sockets: Sequence[int]) -> list[int]:
    """The numbers of the logical processors that a process should use.

    Args:
      mode: "socket": all of the process's socket; "socket_single": its socket's first physical
        core; "socket_single_unique": a physical core of its own; "socket_unique_interleaved" and
        "socket_unique_continuous": a share of the socket's physical cores of its own, dealt in
        turns or in runs. Where a socket has fewer physical cores than processes, they share.
      cores: those that the processes may use at all.
      local_rank: this process among those of the machine.
      sockets: the socket of each process of the machine, by local rank.
    """
    socket = sockets[local_rank]
    own: dict[int, list[int]] = {}
    for core in cores:
        if core.socket == socket:
            own.setdefault(core.core, []).append(core.number)
    physical = [own[core] for core in sorted(own)]
    neighbours = [rank for rank, of in enumerate(sockets) if of == socket]
    place, count = neighbours.index(local_rank), len(neighbours)
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


def bind(mode: str, world, cpu: bool = False) -> str | None:
    """Binds this process with all its threads, and those that they will start; collective.

    Without GPUs the processes are spread over the sockets; fewer than there are sockets use all.

    Args:
      mode: `--affinity`.
      world: the ranks, `runtime.distributed.World`.
      cpu: use no GPU.

    Returns:
      A sentence where that is not what was asked for.
    """
    if mode == DISABLED:
        return None
    allowed = sorted(os.sched_getaffinity(0))
    machine = Path("/proc/sys/kernel/random/boot_id")
    name = machine.read_text().strip() if machine.exists() else os.uname().nodename
    told = world.gather_objects([name, allowed], "affinity")
    if any(theirs != allowed for where, theirs in told if where == name):
        return f"--affinity {mode} is not used: whoever started the processes bound them already"
    cores = topology(allowed)
    sockets = sockets_of_ranks(cores, [] if cpu else gpu_sockets(), world.local_size)
    if sockets is None:
        return f"--affinity {mode} is not used: without a GPU one process may use all sockets"
    chosen = choose(mode, cores, world.local_rank, sockets)
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), chosen)
        except ProcessLookupError:  # it has ended meanwhile
            continue
    alone = mode not in ("socket", "socket_single")
    if alone and any(
        set(chosen) & set(choose(mode, cores, rank, sockets))
        for rank in range(world.local_size)
        if rank != world.local_rank
    ):
        return f"--affinity {mode}: {world.local_size} processes share {len(cores)} cores"
    return None


def sockets_of_ranks(
    cores: Sequence[Core], gpus: Sequence[int], local_size: int
) -> list[int] | None:
    """The socket of each process of a machine: its GPU's; None where each should use all.

    Args:
      cores: that the processes may use.
      gpus: the socket of each GPU; may be empty.
      local_size: number of processes.
    """
    known = sorted({core.socket for core in cores})
    if gpus:
        return [
            gpus[rank % len(gpus)] if gpus[rank % len(gpus)] in known else known[0]
            for rank in range(local_size)
        ]
    if local_size < len(known):
        return None
    return [known[rank * len(known) // local_size] for rank in range(local_size)]


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


def gpu_sockets(
    driver: Path = Path("/proc/driver/nvidia/gpus"), buses: Path = Path("/sys/bus/pci/devices")
) -> list[int]:
    """The socket of each GPU that the process sees; none where there is no GPU.

    A NUMA node stands for a socket; machines with several nodes a socket are seen as one of as many
    sockets as the first numbers say.
    """
    found = []
    for gpu in sorted(driver.glob("*")) if driver.is_dir() else []:
        try:
            found.append(max(0, int((buses / gpu.name.lower() / "numa_node").read_text())))
        except (OSError, ValueError):
            return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if all(number.isdigit() and int(number) < len(found) for number in visible):
        return [found[int(number)] for number in visible]
    return found
