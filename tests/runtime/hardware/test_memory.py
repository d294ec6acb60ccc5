"""Memory of a rank, read from files of procfs and of control groups in a folder."""

import pytest
from embedding_testing.fake_world import run_threads

from runtime.hardware.gpu import Gpu
from runtime.hardware.memory import RankMemory, agree_on_memory, available_bytes, read_memory

VERSION_1 = "4:memory:/jobs/one\n1:cpu:/other\n0::/\n"
VERSION_2 = "0::/jobs/one\n"
UNLIMITED = 9223372036854771712  # as version 1 writes it
AVAILABLE = 3_000 * 1024


def files(folder, control_groups, contents):
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   3000 kB\n")
    (folder / "proc/self/cgroup").write_text(control_groups)
    for name, text in contents.items():
        file = folder / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return folder / "proc", folder / "groups"


@pytest.mark.parametrize(
    ("control_groups", "contents", "expected"),
    [
        (VERSION_2, {}, AVAILABLE),
        (VERSION_2, {"jobs/one/memory.max": "max", "memory.max": "2000000"}, 2_000_000),
        (VERSION_2, {"jobs/one/memory.max": "1700000", "jobs/memory.max": "1600000"}, 1_600_000),
        (
            VERSION_2,
            {
                "jobs/one/memory.max": "1700000",
                "jobs/one/memory.current": "900000",
                "jobs/one/memory.stat": "anon 500000\nactive_file 100000\ninactive_file 300000",
            },
            1_200_000,
        ),
        (VERSION_2, {"memory.max": "5", "memory.current": "7"}, 0),
        (VERSION_2, {"other/memory.max": "1", "jobs/one/cpu.max": "1"}, AVAILABLE),
        (VERSION_1, {"memory/jobs/one/memory.limit_in_bytes": UNLIMITED}, AVAILABLE),
        (
            VERSION_1,
            {
                "memory/jobs/one/memory.limit_in_bytes": 1_400_000,
                "memory/jobs/one/memory.usage_in_bytes": 400_000,
                "memory/jobs/one/memory.stat": "inactive_file 1\ntotal_inactive_file 250000",
            },
            1_250_000,
        ),
        (VERSION_1, {"cpu/other/memory.limit_in_bytes": 1}, AVAILABLE),
    ],
)
def test_available_memory(tmp_path, control_groups, contents, expected):
    assert available_bytes(*files(tmp_path, control_groups, contents)) == expected


def test_memory_of_a_rank(monkeypatch, tmp_path):
    assert available_bytes() > 1e6
    assert available_bytes(tmp_path, tmp_path) is None
    monkeypatch.setattr("runtime.hardware.memory.available_bytes", lambda: 1000)
    gpu = Gpu("a", "0000:1A:00.0", 85)
    assert read_memory("GPU", gpu, 8) == RankMemory(85, 125, "total memory of the GPU")
    assert read_memory("GPU", None, 8)[:2] == (None, 125)
    alone = RankMemory(1000, None, "available memory of the machine")
    assert read_memory("CPU", None, 1) == alone
    shared = RankMemory(333, None, f"{alone.source}, shared by 3 ranks")
    assert read_memory("CPU", None, 3) == shared
    monkeypatch.setattr("runtime.hardware.memory.available_bytes", lambda: None)
    assert read_memory("CPU", None, 3)[:2] == (None, None)


@pytest.mark.parametrize(
    ("by_rank", "expected"),
    [
        ([RankMemory(5, None, "a"), RankMemory(3, None, "b")], RankMemory(3, None, "b")),
        ([RankMemory(5, 9, "a"), RankMemory(6, 8, "b")], RankMemory(5, 8, "a")),
        ([RankMemory(5, 9, "a"), RankMemory(None, 8, "a")], RankMemory(None, 8, "a")),
    ],
)
def test_least_memory_of_all_ranks(by_rank, expected):
    agreed = run_threads(2, lambda world: agree_on_memory(by_rank[world.rank], world))
    assert agreed == [expected] * 2
