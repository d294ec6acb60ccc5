"""Ranks of `benchmarks.network`, asked through a socket in the file system, which reaches into
other networks."""

import socket
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.launched_ranks import LaunchedRanks


class Ranks(LaunchedRanks):
    """Processes of `command` that `launch` starts, see `AskedRanks`.

    Args:
        folder: for the socket.
    """

    def __init__(self, launch: Sequence[str], command: Sequence[str], num_ranks: int, folder: Path):
        place = str(folder / "ranks.socket")
        server = socket.socket(socket.AF_UNIX)
        server.bind(place)
        server.listen(num_ranks)
        super().__init__("network", launch, command, num_ranks, server, place)
