import itertools
import os
import subprocess
import sys

import pytest
from distributed_embeddings.collectives import World

from runtime.hardware import affinity
from runtime.hardware.affinity import Core, bind, choose, socket_of, sockets_of_processes, topology
from runtime.hardware.gpu import Gpu

# Two sockets of four cores with two threads each: threads n and n + 8 share a core.
BOX = [Core(n, n % 8 // 4, n % 4) for n in range(16)]
FOUR_RANKS = [0, 0, 1, 1]
INTERLEAVED, CONTINUOUS = "socket_unique_interleaved", "socket_unique_continuous"


@pytest.mark.parametrize(
    ("mode", "of_ranks"),
    [
        ("socket", [[0, 1, 2, 3, 8, 9, 10, 11]] * 2 + [[4, 5, 6, 7, 12, 13, 14, 15]] * 2),
        ("socket_single", [[0, 8], [0, 8], [4, 12], [4, 12]]),
        ("socket_single_unique", [[0, 8], [1, 9], [4, 12], [5, 13]]),
        (INTERLEAVED, [[0, 2, 8, 10], [1, 3, 9, 11], [4, 6, 12, 14], [5, 7, 13, 15]]),
        (CONTINUOUS, [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]),
    ],
)
def test_cores_of_four_ranks_on_two_sockets(mode, of_ranks):
    assert [choose(mode, BOX, rank, FOUR_RANKS) for rank in range(4)] == of_ranks


@pytest.mark.parametrize("mode", [INTERLEAVED, CONTINUOUS])
def test_disjoint_shares_of_a_socket(mode):
    shares = [choose(mode, BOX, rank, [1] * 3) for rank in range(3)]
    assert sorted(itertools.chain(*shares)) == [4, 5, 6, 7, 12, 13, 14, 15]
    two = [Core(0, 0, 0), Core(1, 0, 1)]  # fewer than processes
    assert [choose(INTERLEAVED, two, rank, [0] * 3) for rank in range(3)] == [[0], [1], [0]]


def test_sockets_of_processes():
    assert sockets_of_processes(BOX, [1, 0]) == [1, 0]  # each GPU's own
    assert sockets_of_processes(BOX, [5]) == [0]  # a socket that may not be used
    assert sockets_of_processes(BOX, [None] * 4) == FOUR_RANKS
    assert sockets_of_processes(BOX, [1, None, 1, 1]) == FOUR_RANKS
    assert sockets_of_processes(BOX, [None]) is None  # without GPUs one process uses both


def test_topology_files(tmp_path):
    for number, socket, core in ((0, 0, 3), (5, 1, 2)):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{core}\n")
    assert topology([0, 5], tmp_path) == [Core(0, 0, 3), Core(5, 1, 2)]
    assert topology([7], tmp_path) == [Core(7, 0, 7)]
    (tmp_path / "cpu5/topology/die_id").write_text("1\n")
    assert topology([5], tmp_path) == [Core(5, 1, 65536 + 2)]
    # Addresses in the notations of CUDA and of Linux.
    gpu, bus = Gpu("GPU-a", "0000:1A:00.0"), tmp_path / "devices/0000:1a:00.0"
    assert socket_of(gpu, bus.parent, tmp_path) is None
    bus.mkdir(parents=True)
    for near, socket in (("5-7,21-23\n", 1), ("0,5\n", 0), ("\n", None)):
        (bus / "local_cpulist").write_text(near)
        assert socket_of(gpu, bus.parent, tmp_path) == socket


def test_bound_process_and_threads():
    """Runs in a separate process, so that pytest keeps its cores."""
    code = (
        "import os, threading, time; from runtime.hardware import affinity; from "
        "runtime.cluster.distributed import "
        "World; threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); "
        "assert not affinity.bind('socket_single', World()); "
        "print(*{tuple(os.sched_getaffinity(int(t))) for t in os.listdir('/proc/self/task')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first = topology(sorted(os.sched_getaffinity(0)))
    assert done.stdout.strip() == str(tuple(choose("socket_single", first, 0, [first[0].socket])))


@pytest.fixture
def bound(monkeypatch):
    """Binds one of several processes on BOX; returns its warning and the cores."""
    monkeypatch.setattr(affinity, "topology", lambda numbers: BOX)
    monkeypatch.setattr(affinity, "socket_of", lambda gpu: int(gpu.address))
    passed = {}
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: passed.update(cores=cores))

    def bind_one(mode, rank, of_gpus):
        class Ranks(World):
            def gather_objects(self, value, name="objects"):
                assert value[2] == of_gpus[rank]
                return [["another", [99], 0], *([*value[:2], of_gpu] for of_gpu in of_gpus)]

        # The first rank is on another machine; each sees its own GPU alone.
        own = None if of_gpus[rank] is None else Gpu(f"GPU-{rank}", str(of_gpus[rank]))
        output = bind(mode, Ranks(rank + 1, len(of_gpus) + 1), own)
        return output, passed.pop("cores", None)

    return bind_one


def test_warning_about_shared_cores(bound):
    mode = "socket_single_unique"
    assert "may use all sockets" in bound(mode, 0, [None])[0]
    assert "9 processes share 16 cores" in bound(mode, 0, [None] * 9)[0]
    assert bound(mode, 0, [None] * 8) == (None, [0, 8])


@pytest.mark.parametrize("rank", range(4))
def test_gpu_of_each_process(bound, rank):
    """With SLURM's --gpus-per-task no process sees the GPUs of the others."""
    shares = [[4, 5, 12, 13], [0, 1, 8, 9], [6, 7, 14, 15], [2, 3, 10, 11]]
    assert bound("socket_unique_continuous", rank, [1, 0, 1, 0]) == (None, shares[rank])


def test_processes_that_are_already_bound(monkeypatch):
    before = os.sched_getaffinity(0)

    class Two(World):
        def gather_objects(self, value, name="objects"):
            return [value, [value[0], [99], None]]

    assert "bound them already" in bind("socket_single", Two(size=2))
    assert bind("disabled", None) is None
    assert os.sched_getaffinity(0) == before
