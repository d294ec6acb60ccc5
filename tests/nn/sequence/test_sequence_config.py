import pytest

from nn.sequence.config import SequenceModelConfig, embedding_tables, hotnesses
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


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("sim", {"model_type": "gru"}, "model_type is one of sim, dien, din, .* got 'gru'"),
        ("sim", {"gsu": "both"}, "gsu is one of soft, hard, got 'both'"),
        ("din", {"attention": "cosine"}, "attention is one of dot, unit, got 'cosine'"),
        ("din", {"item_features": ()}, "item_features is empty"),
        ("din", {"user_features": ("user",)}, r"each of the user features \('user',\), got"),
        ("din", {"item_cardinalities": (3, 0)}, r"each of the item features .* got \(3, 0\)"),
        ("din", {"user_features": ("user", "item")}, r"features \['item'\] occur twice"),
        ("sim", {"long_seq_length": 0}, "must be 1 to 8 of 9 positions, got 0; .* model_type dien"),
        ("sim", {"long_seq_length": 9}, "must be 1 to 8 of 9 positions, got 9"),
        ("din", {"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ("din", {"history_length": 0}, "history_length must be at least 1, got 0"),
        ("sim", {"top_k": 0}, "top_k must be at least 1, got 0"),
        ("din", {"stage_two_mlp_dims": (8, 0)}, r"stage_two_mlp_dims are sizes .* \(8, 0\)"),
        ("din", {"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\), got 1.0"),
        ("din", {"dropout_rate": -1}, r"dropout_rate must be in \[0, 1\), got -1"),
    ],
)
def test_invalid_configs(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        a_config(kind, **changes)


def test_history_cut_of_sim():
    assert a_config("dien", long_seq_length=100).short_start == 0
