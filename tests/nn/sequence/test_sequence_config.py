import pytest

from nn.sequence.sizes import SequenceModelConfig, embedding_tables, hotnesses
from tests.nn.sequence.sequence_rows import a_config


def test_defaults_of_original():
    config = SequenceModelConfig("sim", ("user_id",), (5,), ("item", "cat"), (7, 3))
    assert config.embedding_dim == 16
    assert (config.history_length, config.long_seq_length, config.top_k) == (100, 90, 50)
    assert config.stage_one_mlp_dims == (200,)
    assert config.stage_two_mlp_dims == (200, 80)
    assert config.aux_mlp_dims == (100, 50)
    assert (config.gsu, config.attention, config.dropout_rate) == ("soft", "dot", 0.0)


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
