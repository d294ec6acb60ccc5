"""Rounds in which a kernel, its peer and a copy of memory take turns on a GPU; pages of results."""

import datetime
import math
import shlex
import statistics
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

ROUNDS = 25
WARM_UP_ROUNDS = 3
ROUND_MS = 2.0  # each contender runs at least this long in a round: events are exact to 0.5 us
COPY_BYTES = 512 << 20
_COLUMNS = ("ms", "spread", "GB/s", "of copy", "x torch")


class Measured(NamedTuple):
    """One kernel on one size."""

    ms: float
    spread: float  # interquartile range by median
    bytes_moved: int  # each input read once, each output written once
    copy_share: float  # of the bandwidth of a copy in the same rounds
    torch_speedup: float | None  # PyTorch's time by the kernel's; None: it has no such kernel

    @property
    def gb_per_s(self) -> float:
        return self.bytes_moved / self.ms / 1e6


def copier(torch) -> Callable:
    """A copy of COPY_BYTES on the card, to be called with anything."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return lambda _: target.copy_(source)


def compare(torch, copy, ours, theirs, buffers: Sequence, bytes_moved: int) -> Measured:
    """Medians of rounds in which the contenders take turns, in an order that alternates."""
    contenders = {"ours": ours, "copy": copy} | ({} if theirs is None else {"theirs": theirs})
    next_buffers = dict.fromkeys(contenders, 0)
    times_ms: dict[str, list[float]] = {name: [] for name in contenders}

    def run(name: str, repeats: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            contenders[name](buffers[next_buffers[name] % len(buffers)])
            next_buffers[name] += 1
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / repeats

    repeats = {}
    for name in contenders:
        for _ in range(WARM_UP_ROUNDS):
            once_ms = run(name, 1)
        repeats[name] = max(1, math.ceil(ROUND_MS / once_ms))
    for turn in range(ROUNDS):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            times_ms[name].append(run(name, repeats[name]))
    ms = {name: statistics.median(times) for name, times in times_ms.items()}
    low, _, high = statistics.quantiles(times_ms["ours"], n=4)
    copy_bytes_per_ms = 2 * COPY_BYTES / ms["copy"]
    return Measured(
        ms["ours"],
        (high - low) / ms["ours"],
        bytes_moved,
        bytes_moved / ms["ours"] / copy_bytes_per_ms,
        None if theirs is None else ms["theirs"] / ms["ours"],
    )


def table(
    titles: Sequence[str],
    names: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[Measured]]],
) -> str:
    """Lines in Markdown: words under `titles`, then a measurement for each of `names`."""
    measured_titles = [f"{name} {column}" for name in names for column in _COLUMNS]
    lines = [[*titles, *measured_titles], ["---"] * len(titles) + ["---:"] * len(measured_titles)]
    for words, all_measured in rows:
        line = list(words)
        for measured in all_measured:
            line += [
                f"{measured.ms:.3f}",
                f"{measured.spread:.1%}",
                f"{measured.gb_per_s:,.0f}",
                f"{measured.copy_share:.0%}",
                "" if measured.torch_speedup is None else f"{measured.torch_speedup:.1f}",
            ]
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(
    title: str,
    measured: Sequence[Measured],
    machine: dict[str, str],
    arguments: Sequence[str],
    lines: str,
) -> str:
    """A dated page of results, up to the meaning of GB/s and of PyTorch's part."""
    copy_gb_per_s = statistics.median(m.gb_per_s / m.copy_share for m in measured)
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    return f"""# {title} on {machine["device"]}

{datetime.date.today().isoformat()}, `python -m tests.gpu {shlex.join(arguments)}`

{facts}
- a copy of {COPY_BYTES >> 20} MiB on the card: {copy_gb_per_s:,.0f} GB/s, read and written

{lines}

Medians of {ROUNDS} rounds of at least {ROUND_MS:.0f} ms each, timed by events; spread:
interquartile range by median. In a round our kernel, PyTorch and the copy take turns, in an order
that alternates; buffers rotate so that together they pass the L2 cache. "of copy": GB/s by those of
the copy.

"""


def machine(torch) -> dict[str, str]:
    """Returns the properties of the machine that the numbers depend on."""
    query = [
        "nvidia-smi",
        "--query-gpu=driver_version,clocks.max.sm,power.limit",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        driver = done.stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "L2 cache": f"{properties.L2_cache_size / 2**20:.0f} MiB",
        "multiprocessors": str(properties.multi_processor_count),
        "driver, highest clock, power limit": driver,
        "PyTorch": f"{torch.__version__}, CUDA {torch.version.cuda}",
    }
