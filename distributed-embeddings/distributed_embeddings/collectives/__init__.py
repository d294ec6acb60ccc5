"""The processes that train together, and their collectives."""

from distributed_embeddings.collectives.world import (
    CollectiveError,
    World,
    connected,
    current,
    rank_names,
    set_current,
)

__all__ = ["CollectiveError", "World", "connected", "current", "rank_names", "set_current"]
