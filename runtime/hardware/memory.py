"""Memory that the embedding tables of a rank may use: of its GPU, or of the machine."""

from typing import NamedTuple

from distributed_embeddings.collectives import World

from runtime.hardware.available_memory import available_bytes
from runtime.hardware.gpu import Gpu


class RankMemory(NamedTuple):
    """Memory of one rank in bytes; None where it is not known.

    Attributes:
        device_bytes: total memory of the rank's GPU; on a CPU its share of the machine's available
            memory, which `source` describes for messages.
        host_bytes: with a GPU, that share; None on a CPU, where it is the same memory.
    """

    device_bytes: int | None = None
    host_bytes: int | None = None
    source: str = ""


def read_memory(kind: str, gpu: Gpu | None, num_local_ranks: int) -> RankMemory:
    """Reads the memory of this rank; `gpu` is its GPU, if the driver describes it."""
    available = available_bytes()
    share = None if available is None else available // num_local_ranks
    if kind == "GPU":
        return RankMemory(gpu and gpu.memory_bytes, share, "total memory of the GPU")
    ranks = f", shared by {num_local_ranks} ranks" if num_local_ranks > 1 else ""
    return RankMemory(share, None, f"available memory of the machine{ranks}")


def agree_on_memory(memory: RankMemory, world: World) -> RankMemory:
    """Returns the least memory of all ranks, the same on every rank; a collective.

    All ranks compute one plan, so they must use the same figures. A figure that one rank does not
    know is unknown to all.
    """
    by_rank = world.gather_objects(list(memory), "memory")

    def least(values: tuple[int | None, ...]) -> int | None:
        known = [value for value in values if value is not None]
        return min(known) if len(known) == len(values) else None

    device_bytes, host_bytes, _ = zip(*by_rank, strict=True)
    smallest = least(device_bytes)
    source = memory.source if smallest is None else by_rank[device_bytes.index(smallest)][2]
    return RankMemory(smallest, least(host_bytes), source)
