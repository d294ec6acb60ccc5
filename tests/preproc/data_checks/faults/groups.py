"""Groups of places, and rows for each."""

from tests.preproc.data_checks import tables
from tests.preproc.data_checks.places import CLEAN, PLACES
from tests.preproc.data_checks.tables import Table

NEW_ROWS = ("vocabulary", "grow", "predict")
LOGS = ("interactions", "ratings", "histories")


def clean(place: str) -> Table:
    """Returns clean rows of a place; for new rows, others than those of the training."""
    table = PLACES[place].table
    return tables.clicks(1) if place in NEW_ROWS else CLEAN[table]()


def with_column(name: str, values: list) -> Table:
    """Returns clicks with one more column, before the label."""
    table = tables.clicks(num_rows=len(values))
    label = table.pop("click")
    return {**table, name: values, "click": label}
