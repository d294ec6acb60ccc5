import pytest

from nn.sequence.sizes import embedding_tables, hotnesses
from tests.nn.sequence.sequence_rows import a_config


@pytest.mark.parametrize(
    ("kind", "positions", "short_start", "negatives"),
    [("sim", 9, 5, 3), ("dien", 9, 0, 8), ("din", 9, 0, 0), ("no history", 0, 0, 0)],
)
def test_lookups(kind, positions, short_start, negatives):
    config = a_config(kind)
    assert config.item_dim == 6
    assert config.num_positions == positions
    assert config.short_start == short_start
    assert config.num_negatives == negatives
    assert embedding_tables(config) == [
        ("user", 9, 3),
        ("age", 3, 3),
        ("item", 30, 3),
        ("category", 4, 3),
    ]
    item = 1 + positions + negatives
    assert hotnesses(config) == [1, 1, item, item]


def test_history_cut_of_sim():
    assert a_config("dien", long_seq_length=100).short_start == 0
