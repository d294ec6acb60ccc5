"""Columns of a table that a preparation leaves out unless a flag keeps them."""

from collections.abc import Mapping

from preproc.checks.report import PASSED, Finding
from preproc.checks.telling_columns import (
    SAMPLE_ROWS,
    constant_columns,
    row_numbers,
    telling_columns,
    unique_columns,
)
from preproc.fitting.infer import IDS, NUMBERS, OTHER, ColumnFacts
from preproc.fitting.whole_numbers import KindChoice
from preproc.transcode.raw.raw_tables import RawTables


def left_out_columns(
    raw: RawTables,
    facts: Mapping[str, ColumnFacts],
    choices: Mapping[str, KindChoice],
) -> list[Finding]:
    """Returns the checks of columns, at most one that did not pass for each.

    Args:
        raw: the rows of the split train alone, with a label.
        facts: of the columns that may be left out.
        choices: kinds of those that hold whole numbers.
    """
    kinds = {
        name: (IDS if choices[name].is_id else NUMBERS) if name in choices else own.kind
        for name, own in facts.items()
        if own.kind != OTHER
    }
    (table,) = raw.tables.values()
    own = {name: facts[name] for name in kinds}
    checks = constant_columns(own)
    checks += row_numbers(raw.engine, table, own, raw.missing, raw.most_rows)
    checks += unique_columns(own, kinds)
    single = {name: kind for name, kind in kinds.items() if not facts[name].list_form}
    if raw.label is not None:
        sample = raw.train_sample(SAMPLE_ROWS)
    checks += telling_columns(raw.engine, sample, single, raw.label, raw.missing)
    failed: set[tuple[str, ...]] = set()
    result = []
    for check in checks:
        if check.columns not in failed:
            result.append(check)
        if check.level != PASSED:
            failed.add(check.columns)
    return result
