"""Available memory as Linux reports it, with a folder in place of its files."""

import math

import pytest

from deployment.serving.free_memory import available_bytes

VERSION_1 = "4:memory:/jobs/one\n1:cpu:/other\n0::/\n"
VERSION_2 = "0::/jobs/one\n"
# The value of version 1 for the absence of a limit.
NONE = 9223372036854771712


@pytest.mark.parametrize(
    ("control_groups", "limits", "expected"),
    [
        (VERSION_2, {}, 3_000 * 1024),
        (VERSION_2, {"jobs/one/memory.max": "max", "memory.max": "2000000"}, 2_000_000),
        (VERSION_2, {"jobs/one/memory.max": "1500000", "jobs/memory.max": "1600000"}, 1_500_000),
        (VERSION_2, {"jobs/one/memory.max": "1700000", "jobs/memory.max": "1600000"}, 1_600_000),
        (VERSION_2, {"other/memory.max": "1", "jobs/one/cpu.max": "1"}, 3_000 * 1024),
        (VERSION_1, {"memory/jobs/one/memory.limit_in_bytes": NONE}, 3_000 * 1024),
        (VERSION_1, {"memory/memory.limit_in_bytes": 1_400_000}, 1_400_000),
        (VERSION_1, {"cpu/other/memory.limit_in_bytes": 1}, 3_000 * 1024),
    ],
)
def test_smallest_limit(tmp_path, control_groups, limits, expected):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   3000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(control_groups)
    for name, limit in limits.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    assert available_bytes(tmp_path / "proc", tmp_path / "groups") == expected


def test_this_machine(tmp_path):
    assert 1e6 < available_bytes() < math.inf
    assert available_bytes(tmp_path, tmp_path) == math.inf  # where Linux reports nothing
