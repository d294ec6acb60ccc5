"""Which GPU a process has, by names that mean the same in every process of a machine.

Its number does not: SLURM's --gpus-per-task shows each task its own GPU alone, as number 0.
"""

import ctypes
import socket
import uuid
from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU, or a part of one (MIG).

    identity: its UUID, which no other has on any machine.
    address: of the card on the PCI bus, like "0000:65:00.0".
    memory_bytes: its total memory; of a part, that of the part. None: not known.
    """

    identity: str
    address: str
    memory_bytes: int | None = None


def look(number: int) -> Gpu | None:
    """The GPU that CUDA counts as `number` in this process; None where the driver does not say.

    It makes no use of the GPU: TensorFlow's settings may still change.
    """
    device, own, memory = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    address = ctypes.create_string_buffer(32)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        done = [
            cuda.cuInit(0),
            cuda.cuDeviceGet(ctypes.byref(device), number),
            cuda.cuDeviceGetUuid_v2(own, device),  # with _v2 that of a part, else of the whole card
            cuda.cuDeviceGetPCIBusId(address, len(address), device),
            cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
        ]
    except (OSError, AttributeError):  # no driver, or one of before CUDA 11.4
        return None
    if any(done):
        return None
    return Gpu(str(uuid.UUID(bytes=bytes(own))), address.value.decode(), memory.value)


def check_not_shared(gpu: Gpu | None, world) -> None:
    """Makes sure that each rank has a GPU of its own; a collective of ranks that compute on GPUs.

    NCCL refuses ranks that share one, but only in the first step, and in other words. Where
    `look` does not know a rank's GPU, that is left to it.

    Args:
        gpu: that of this process.
        world: the ranks, `runtime.cluster.distributed.World`.

    Raises:
        CollectiveError: an error of those that take the GPU of an earlier rank.
    """
    told = world.gather_objects([socket.gethostname(), gpu and gpu.identity], "gpus")
    taken: set[str] = set()
    surplus = []
    for rank, (_, identity) in enumerate(told):
        if identity in taken:
            surplus.append(rank)
        elif identity is not None:
            taken.add(identity)
    if not surplus:
        return
    host = socket.gethostname()
    there = [identity for where, identity in told if where == host]
    num_gpus = len({*there} - {None})
    world.agree(
        f"{len(there)} processes on {host} see {num_gpus} GPU{'s' if num_gpus > 1 else ''} in all, "
        "and each needs one of its own: start no more on a machine than it has GPUs (SLURM: "
        "--gpus-per-node and --ntasks-per-node of the same number; horovodrun: -H HOST:GPUS), or "
        "compute without them (--cpu)"
        if world.rank in surplus
        else None
    )
