"""Table of kinds of faults and places: each input is read right, warned of or refused.

`make test` runs the first member of each kind at each place, on Spark of one kind; `make
test-all` runs all.
"""

import contextlib
import fnmatch

import pytest

from tests.preproc.data_checks import places
from tests.preproc.data_checks.cell import Cell
from tests.preproc.data_checks.faults import columns, files, logs, rows, values
from tests.preproc.data_checks.places import PLACES, SPARK

CELLS = [cell for module in (values, columns, rows, logs, files) for cell in module.cells()]
# Names of cells, with * for any text, and why they are not as expected yet.
WRONG: dict[str, str] = {}
# Kinds of which `make test` runs a cell at the slower places.
QUICK_ON_SPARK = ("drift",)
QUICK = dict.fromkeys(SPARK, QUICK_ON_SPARK) | {"criteo_encode_only": ("drift", "unknown_values")}
NAMES = [cell.name for cell in CELLS]


def _parameters():
    """Yields the cells with their marks."""
    known = set()
    for cell in CELLS:
        marks = []
        is_slow = cell.kind not in QUICK.get(cell.place, (cell.kind,))
        if (cell.kind, cell.place) in known or is_slow:
            marks.append(pytest.mark.long)
        known.add((cell.kind, cell.place))
        if cell.place in SPARK:
            marks.append(pytest.mark.engines("pyspark"))
        for pattern, reason in WRONG.items():
            if fnmatch.fnmatchcase(cell.name, pattern):
                marks.append(pytest.mark.xfail(reason=reason, strict=True))
        yield pytest.param(cell, marks=marks, id=cell.name)


@pytest.fixture(scope="module", autouse=True)
def folder_of_clean_rows(tmp_path_factory):
    places.use_folder(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Spark, which starts once."""
    from preproc.movielens.options import parse
    from tests.preproc import shared_spark

    folder = tmp_path_factory.mktemp("spark")
    (folder / "log.csv").write_text("userId,movieId,rating,timestamp\n")
    flags = [f"--input={folder / 'log.csv'}", f"--output={folder / 'out'}", "--engine=spark"]
    flags += ["--memory_limit=3GB", "--threads=2"]
    with shared_spark.started(parse(flags), folder) as session:
        yield lambda: shared_spark.used(session)


@pytest.mark.parametrize("cell", _parameters())
def test_fault_at_place(cell: Cell, tmp_path, request):
    place = PLACES[cell.place]
    with contextlib.ExitStack() as stack:
        if place.engine:
            stack.enter_context(request.getfixturevalue("session")())
        flags = tuple(flag.format(folder=tmp_path) for flag in cell.flags)
        path = cell.write(place, tmp_path / "input")
        outcome = place.run(path, tmp_path / "out", *flags)
        cell.expected.check(place, outcome, tmp_path, flags)


def test_names_of_cells():
    assert len(NAMES) >= 300
    assert len({*NAMES}) == len(NAMES)
