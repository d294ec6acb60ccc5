"""Files of a log: the day files of a folder, or one single file."""

import re
from dataclasses import dataclass
from pathlib import Path

from runtime.files.paths import absent

_DAY_FILE = re.compile(r".*day_(\d+)(?:\.(?:tsv|txt))?(?:\.gz)?")


@dataclass(frozen=True)
class LogFile:
    """One raw file. `day` is absent (None) where the whole log is one single file."""

    path: Path
    day: int | None

    @property
    def name(self) -> str:
        """Name in messages and stages: `day_3`, or the file's own name."""
        return self.path.name if self.day is None else f"day_{self.day}"


def fingerprint(path: Path) -> list:
    """Returns what changes when the file does: path, bytes, time of the last change in ns."""
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def parse_days(text: str) -> tuple[int, ...]:
    """ "0-3,7" -> (0, 1, 2, 3, 7): days and ranges of days, both ends included, in any order."""
    days: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not match:
            raise ValueError(
                f"{text!r} is not a list of days: got {part!r}; write it like 0-23 or 0,1,5-7"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r} is not a list of days: {part!r} ends before it starts")
        days.extend(range(first, last + 1))
    if len(set(days)) != len(days):
        twice = next(day for day in days if days.count(day) > 1)
        raise ValueError(f"{text!r} names day {twice} twice")
    return tuple(sorted(days))


def find_log_files(source: Path, days: tuple[int, ...] | None) -> list[LogFile]:
    """Returns the `*day_N` files of a folder, or `source`; raises ValueError without them."""
    if source.is_file():
        if days is not None:
            raise ValueError(
                f"--days chooses among the day files of a folder, but --input {source} is a file; "
                "leave --days out"
            )
        return [LogFile(source, None)]
    if not source.is_dir():
        raise ValueError(f"--input {absent(source)}")
    files: dict[int, Path] = {}
    for path in sorted(source.iterdir()):
        match = _DAY_FILE.fullmatch(path.name)
        if not match or not path.is_file():
            continue
        day = int(match[1])
        if day in files:
            raise ValueError(
                f"two files for day {day} in {source}: {files[day].name} and {path.name}; "
                "keep one of them"
            )
        files[day] = path
    there = ", ".join(path.name for _, path in sorted(files.items())) or "none"
    if not files:
        raise ValueError(
            f"--input {source} holds no day files; they are named like day_0, day_0.gz or "
            "log_day_0.tsv (for one single file, name the file itself)"
        )
    missing = [day for day in days or () if day not in files]
    if missing:
        names = ", ".join(f"day_{day}" for day in missing)
        raise ValueError(f"--input {source} has no file for {names}; day files there: {there}")
    return [LogFile(files[day], day) for day in (days or sorted(files))]
