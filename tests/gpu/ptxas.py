"""Registers and spills of kernels, from the compiler's report (-Xptxas -v)."""

import re
import subprocess
from collections.abc import Iterable
from typing import NamedTuple


class Usage(NamedTuple):
    """Resources of one kernel; sizes in bytes."""

    registers: int  # of a thread
    stack_bytes: int
    spill_bytes: int  # stores


def usages(log: str) -> dict[str, Usage]:
    """Returns the usage of each kernel of a report, by its symbol."""
    result = {}
    for section in log.split("Compiling entry function '")[1:]:
        numbers = [
            re.search(pattern, section)
            for pattern in (
                r"Used (\d+) registers",
                r"(\d+) bytes stack frame",
                r"(\d+) bytes spill stores",
            )
        ]
        if all(numbers):
            symbol = section.partition("'")[0]
            result[symbol] = Usage(*(int(number[1]) for number in numbers if number))
    return result


def readable(symbols: Iterable[str]) -> list[str]:
    """Returns names of kernels as in the source, without namespaces and parameters."""
    text = "\n".join(symbols)
    done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True)
    names = []
    for line in done.stdout.splitlines():
        name = re.sub(r"\w+::device::", "", line.removeprefix("void "))
        names.append(
            re.sub(r"\(.*", "", name.replace("(bool)1", "true").replace("(bool)0", "false"))
        )
    return names
