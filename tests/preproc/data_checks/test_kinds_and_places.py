"""Table of kinds of faults and places: each input is read right, warned of or refused.

`make test` runs the first member of each kind at each place but those of QUICK; `make test-all`
runs all.
"""

import pytest

from tests.preproc.data_checks import places
from tests.preproc.data_checks.expected import Cell
from tests.preproc.data_checks.faults import logs, rows, values
from tests.preproc.data_checks.places import PLACES, SPARK

CELLS = [cell for module in (values, rows, logs) for cell in module.cells()]
# Kinds of which `make test` runs a cell at the slower places.
# Rows of "grow" are read as those of "vocabulary".
FEW = ("drift", "unknown_values")
QUICK = {**dict.fromkeys(SPARK, ()), "criteo_encode_only": FEW, "grow": FEW}


def _parameters():
    known = set()
    for cell in CELLS:
        marks = []
        is_slow = cell.kind not in QUICK.get(cell.place, (cell.kind,))
        if (cell.kind, cell.place) in known or is_slow:
            marks.append(pytest.mark.long)
        known.add((cell.kind, cell.place))
        if cell.place in SPARK:
            marks.append(pytest.mark.engines("pyspark"))
        yield pytest.param(cell, marks=marks, id=cell.name)


@pytest.fixture(scope="module", autouse=True)
def folder_of_clean_rows(tmp_path_factory):
    places.use_folder(tmp_path_factory.mktemp("clean"))


@pytest.mark.parametrize("cell", _parameters())
def test_fault_at_place(cell: Cell, tmp_path, request):
    place = PLACES[cell.place]
    if place.engine:
        request.getfixturevalue("one_spark")
    flags = tuple(flag.format(folder=tmp_path) for flag in cell.flags)
    path = cell.write(place, tmp_path / "input")
    outcome = place.run(path, tmp_path / "out", *flags)
    cell.expected.check(place, outcome, tmp_path, flags)
