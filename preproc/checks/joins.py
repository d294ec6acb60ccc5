"""Users or items of a log, joined with a table of their features."""

from dataclasses import dataclass

import ibis.expr.types as ir

from preproc.checks.report import PASSED, WARNING, Check
from preproc.engines.engine import Engine, count_rows

_LEAST_SHARE = 0.5
_EXAMPLES = 3


@dataclass(frozen=True)
class JoinedTable(Check):
    """Share of the users or items of a log that are in a table of their features.

    Attributes:
        kind: "user" or "item".
        source: files of the table.
        num, matched: users or items of the log, and those of them that the table has.
        unmatched: values of the log that the table lacks.
        others: values of the table that the log lacks.
    """

    name = "joined_tables"
    why = "all users or items that a table lacks share one value of each of its features"
    kind: str
    source: str
    num: int
    matched: int
    unmatched: tuple = ()
    others: tuple = ()

    @property
    def level(self) -> str:
        return WARNING if self.matched < _LEAST_SHARE * self.num else PASSED

    @property
    def seen(self) -> str:
        share = f"{self.matched:,}" if self.matched else "none"
        examples = ""
        for what, values in (("log", self.unmatched), ("table", self.others)):
            if values:
                examples += f"; only the {what} has {', '.join(map(repr, values))}"
        return f"{share} of the {self.num:,} {self.kind}s of the log are in {self.source}{examples}"

    @property
    def remedy(self) -> str:
        return f"write the {self.kind}s of both in the same way, or pass the table of this log"


def joined_table(
    engine: Engine, kind: str, ids: ir.Table, table: ir.Table, source: str
) -> JoinedTable:
    """Returns how many of the users or items of a log are in a table.

    Args:
        ids: a column `value`, each once.
        table: a column `kind`, of the same type.

    Raises:
        ValueError: none of them is.
    """
    log, rows = ids.select("value"), table.select(value=kind)
    num, matched = count_rows(engine, log), count_rows(engine, log.semi_join(rows, "value"))
    if matched >= _LEAST_SHARE * num:
        return JoinedTable(kind, source, num, matched)
    examples = (
        engine.fetch(one.anti_join(other, "value").distinct().order_by("value").limit(_EXAMPLES))
        for one, other in ((log, rows), (rows, log))
    )
    unmatched, others = (tuple(table["value"].to_pylist()) for table in examples)
    check = JoinedTable(kind, source, num, matched, unmatched, others)
    if not matched:
        raise ValueError(f"{check.seen}; {check.remedy}")
    return check
