"""Identity of a process's GPU, the same in every process of a machine.

Its number is not: SLURM's --gpus-per-task shows each task only its own GPU, as number 0.
"""

import ctypes
import socket
import uuid
from typing import NamedTuple

from distributed_embeddings.collectives import World


class Gpu(NamedTuple):
    """A GPU, or a part of one (MIG)."""

    identity: str  # its UUID
    address: str  # of the card on the PCI bus, like "0000:65:00.0"
    memory_bytes: int | None = None  # total, of the part if it is one; None: unknown


def identify(number: int) -> Gpu | None:
    """Returns CUDA's GPU `number` of this process; None if the driver does not identify it.

    Does not initialise the GPU: TensorFlow's settings may still change.
    """
    device, identity, memory = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    address = ctypes.create_string_buffer(32)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        statuses = [
            cuda.cuInit(0),
            cuda.cuDeviceGet(ctypes.byref(device), number),
            cuda.cuDeviceGetUuid_v2(identity, device),  # _v2: of the part, if it is one
            cuda.cuDeviceGetPCIBusId(address, len(address), device),
            cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
        ]
    except (OSError, AttributeError):  # no driver, or one of before CUDA 11.4
        return None
    if any(statuses):
        return None
    return Gpu(str(uuid.UUID(bytes=bytes(identity))), address.value.decode(), memory.value)


def check_not_shared(gpu: Gpu | None, world: World) -> None:
    """Checks that each rank has a GPU of its own; a collective of ranks that compute on GPUs.

    NCCL rejects ranks that share one, but only in the first step. GPUs that `identify` does not
    know are left to it.

    Raises:
        CollectiveError: by ranks that use the GPU of an earlier rank.
    """
    host = socket.gethostname()
    by_rank = world.gather_objects([host, gpu and gpu.identity], "gpus")
    error = None
    if gpu is not None and gpu.identity in (other for _, other in by_rank[: world.rank]):
        local = [identity for name, identity in by_rank if name == host]
        error = (
            f"{len(local)} processes on {host} share GPUs ({len({*local} - {None})} in all), and "
            "each needs one of its own: start no more on a machine than it has GPUs (SLURM: "
            "--gpus-per-node and --ntasks-per-node of the same number; horovodrun: -H HOST:GPUS), "
            "or compute without them (--cpu)"
        )
    world.agree(error)
