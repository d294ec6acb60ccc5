"""Parts of a table: runs of rows and columns."""

from collections.abc import Iterator
from typing import NamedTuple


class Box(NamedTuple):
    """Rows row..row_end-1 and columns column..column_end-1 of a matrix."""

    row: int
    row_end: int
    column: int
    column_end: int

    @property
    def rows(self) -> int:
        return self.row_end - self.row

    @property
    def columns(self) -> int:
        return self.column_end - self.column

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.rows * self.columns

    def overlap(self, other: "Box") -> "Box | None":
        """Returns the intersection; None if it is empty."""
        row, row_end = max(self.row, other.row), min(self.row_end, other.row_end)
        column, end = max(self.column, other.column), min(self.column_end, other.column_end)
        return Box(row, row_end, column, end) if row < row_end and column < end else None

    def blocks(self, rows_each: int) -> Iterator["Box"]:
        """Yields the box in runs of at most `rows_each` rows."""
        for row in range(self.row, self.row_end, rows_each):
            yield self._replace(row=row, row_end=min(row + rows_each, self.row_end))
