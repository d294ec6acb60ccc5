"""Order of events of one user and time: rows of the log, or a hash where these follow items."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.checks.equal_times import TiedEvents
from preproc.checks.report import NOTE, PASSED
from preproc.engines.engine import ROW
from preproc.engines.open_engine import open_engine
from preproc.events import ties
from preproc.events.ties import order_ties
from preproc.sources.column_chunk import SourceChunk
from tests.preproc.events.hashed_rows import hashed_row

SPARK = pytest.param("spark", marks=pytest.mark.engines("pyspark"))


def ordered(folder, events, seed=0, name="duckdb"):
    """Returns the tie orders by row, and the ties; events: (user, item, time)."""
    path = folder / "log.parquet"
    columns = zip(*events, strict=True)
    pq.write_table(pa.table(dict(zip(("user", "item", "time"), columns, strict=True))), path)
    with open_engine(name, folder, memory_limit_bytes=3 << 30, threads=2) as engine:
        rows = engine.read([SourceChunk("parquet", (str(path),))])
        log = engine.store_table(rows.select("user", "item", "time", row=rows[ROW]), "events")
        result, tied = order_ties(engine, log, seed)
        orders = engine.fetch(result.order_by("user", "time", "tie_order"))
    return orders.to_pylist(), tied


def drawn(key=None, num_users=50, items=range(20)):
    """Returns eight different items of one day of each user; sorted, if there is a key."""
    draw = random.Random(3)
    events = [(u, i, 7) for u in range(num_users) for i in draw.sample(items, 8)]
    return sorted(events, key=lambda event: (event[0], key(event[1]))) if key else events


def test_ties_by_hand(tmp_path):
    """User 1 has three events at time 5, of which two are of one item; user 2 has no tie."""
    events = [(1, 9, 5), (2, 3, 5), (1, 9, 5), (1, 4, 5), (1, 9, 6), (2, 4, 6)]
    rows, tied = ordered(tmp_path, events)
    assert tied == TiedEvents(events=6, tied=3, pairs=1, ascending=0, predictable=0, predicted=0)
    assert [row["tie_order"] for row in rows] == [0, 2, 3, 4, 1, 5]
    assert tied.finding().seen.startswith("50.0% of the events")
    assert tied.finding().seen.endswith("They keep the order of their rows")


@pytest.mark.parametrize("name", ["duckdb", SPARK])
@pytest.mark.quick("*-duckdb")
@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, ""),
        (lambda item: item, "100% of 350 pairs have their items in ascending order"),
        (lambda item: -item, "100% of 350 pairs have their items in descending order"),
        (lambda item: item * 7 % 23, "their items in the same order everywhere"),
    ],
    ids=["drawn", "ascending", "descending", "by a property"],
)
def test_orders(tmp_path, request, name, key, words):
    if name == "spark":
        request.getfixturevalue("one_spark")
    events = drawn(key)
    rows, tied = ordered(tmp_path, events, 5, name)
    assert words in tied.of_items
    assert bool(tied.of_items) == bool(words)
    assert ("by item, not by time" in tied.finding().seen) == bool(words)
    assert ":" not in tied.finding().seen
    place = [hashed_row(row, 5) if words else row for row in range(len(events))]
    expected = sorted(range(len(events)), key=lambda row: (events[row][0], place[row]))
    assert [(row["user"], row["item"], row["time"]) for row in rows] == [
        events[i] for i in expected
    ]


def test_text(tmp_path):
    events = [(str(u), f"i{i}", 7) for u, i, _ in drawn()]
    assert not ordered(tmp_path, events)[1].of_items
    assert "ascend" in ordered(tmp_path, sorted(events))[1].of_items


@pytest.mark.parametrize(("num", "level"), [(9, PASSED), (10, NOTE)])
def test_level(num, level):
    assert TiedEvents(1000, num, 0, 0, 0, 0).finding().level == level


def test_few_ties(tmp_path):
    """Less than 26 pairs, all ascending, may be chance."""
    events = [(u, i, 7) for u in range(26) for i in (1, 2)]
    assert "ascend" in ordered(tmp_path, events)[1].of_items
    assert not ordered(tmp_path, events[:-2])[1].of_items


def test_sample(tmp_path, monkeypatch):
    """Half of the users have ties of two, in a sample of about a tenth of 2,000 events."""
    monkeypatch.setattr(ties, "SAMPLE_EVENTS", 200)
    events = [(u, i, 7 + i * (u % 2)) for u in range(1000) for i in range(2)]
    random.Random(0).shuffle(events)
    tied = ordered(tmp_path, events)[1]
    assert tied.events == 200
    assert 0.4 < tied.tied / tied.events < 0.6
    assert tied.pairs == pytest.approx(tied.tied, abs=20)
