"""Search spaces from `--param`."""

import re

import pytest

from recipes.registry import DLRM, NCF
from recipes.search.space import Parameter, parse_parameters


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("learning_rate=log:1e-4..1e-1", Parameter("learning_rate", "log", (1e-4, 1e-1))),
        ("batch_size=log:64..4096", Parameter("batch_size", "log", (64, 4096), True)),
        ("--weight-decay=float:0..2", Parameter("weight_decay", "float", (0.0, 2.0))),
        ("epochs=int:1..4", Parameter("epochs", "int", (1, 4), True)),
        ("embedding_dim=choice:16,32", Parameter("embedding_dim", "choice", ("16", "32"))),
        ("top_mlp_dims=choice:8,1|1", Parameter("top_mlp_dims", "choice", ("8,1", "1"))),
    ],
)
def test_parameters(text, parameter):
    assert parse_parameters([text], DLRM) == [parameter]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "expected at least one, FLAG=log:LOW..HIGH"),
        (["learning_rate"], "--param learning_rate: expected FLAG="),
        (["learning_rate=log:1"], "--param learning_rate=log:1: expected FLAG="),
        (["learning_rate=lin:1..2"], "expected FLAG="),
        (["learning_rate=log:0..1"], "expected 0 < LOW < HIGH, got 0.0 and 1.0"),
        (["learning_rate=log:1e-4..inf"], "expected finite numbers, got 0.0001 and inf"),
        (["learning_rate=float:nan..1"], "expected finite numbers, got nan and 1.0"),
        (["epochs=int:3..3"], "expected LOW < HIGH, got 3 and 3"),
        (["epochs=int:1..2.5"], "expected FLAG=log:LOW..HIGH"),
        (["epochs=int:1..2", "epochs=int:1..3"], "each flag once, got epochs several times"),
    ],
)
def test_mistakes(texts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_parameters(texts, DLRM)


def test_start_values():
    learning_rate, width = parse_parameters(
        ["learning_rate=log:1e-4..1e-1", "top_mlp_dims=choice:8,1|1"], DLRM
    )
    assert learning_rate.start(0.01) == 0.01 and learning_rate.start(1) is None
    assert width.start((8, 1)) == "8,1" and width.start((9, 1)) is None
    assert parse_parameters(["l=log:1e-4..1e-1"], NCF)[0].flag == "learning_rate"
