"""A cell of the table of faults and places."""

from dataclasses import dataclass

from tests.preproc.data_checks.expected import Expected, Write


@dataclass(frozen=True)
class Cell:
    """An input with a fault, at a place.

    Attributes:
        kind: of the fault, a row of the table.
        member: of the kind.
        place: name of the place.
        write: writes the input.
        expected: what the command does.
        flags: of the command, in addition to those of the place.
    """

    kind: str
    member: str
    place: str
    write: Write
    expected: Expected
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.member}-{self.place}"
