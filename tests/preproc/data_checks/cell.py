"""A cell of the table of faults and places."""

from dataclasses import dataclass

from tests.preproc.data_checks.expected import Expected, Write


@dataclass(frozen=True)
class Cell:
    """An input with a fault, at a place."""

    kind: str
    member: str
    place: str
    write: Write
    expected: Expected
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.member}-{self.place}"
