"""Every rank executes the same collectives in compiled steps, whatever it needs itself."""

import distributed_embeddings as dmp
import pytest
import tensorflow as tf
from embedding_testing.traced_ranks import (
    TracedRank,
    collectives_of,
    differences,
    set_up,
)

from tests.nn.embedding.collective_plans import Case, Feature, faults, random_case

pytest.importorskip("horovod", reason="Horovod is not installed")

FIXED = Feature(0, 1, ragged=False)
# Each hung on real ranks (tests/ranks/test_idle_ranks.py).
CASES = {
    "fixed ids on one rank and ragged ids on the other": Case(
        2,
        ((9, 4, "sum", True), (9, 4, "sum", True)),
        (FIXED, Feature(1, 3, ragged=True)),
        {"strategy": "basic"},
    ),
    "a rank without tables": Case(
        2, ((9, 4, "sum", True),), (FIXED,), {"column_slice_threshold": 10**8}
    ),
    "row means and a rank that trains no table": Case(
        3, ((9, 2, "sum", True),), (FIXED,), {}, optimizer="rowwise_adagrad"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_idle_rank(name, monkeypatch, tmp_path):
    assert faults(CASES[name], monkeypatch, tmp_path) == []


@pytest.mark.quick("0")
@pytest.mark.parametrize("first", range(0, 300, 4))
def test_random_plans(first, monkeypatch, tmp_path):
    wrong = {}
    for seed in range(first, first + 4):
        case = random_case(seed)
        if reasons := faults(case, monkeypatch, tmp_path / str(seed)):
            wrong[case] = reasons
    assert wrong == {}


def two_tables(world):
    """A layer with a table on each of two ranks."""
    tables = [dmp.Embedding(5, 4, combiner="sum", name=f"t{t}") for t in range(2)]
    layer = dmp.DistributedEmbedding(tables, world=world, name="e")
    layer.build(None)
    return layer


IDS = [tf.constant([[0], [1]])] * 2


def test_constant_gradients_of_replicated_weights(monkeypatch, tmp_path):
    world = TracedRank(1, 2, 1, 2)
    set_up(monkeypatch, world)
    vector, scalar, table = (tf.Variable(tf.ones(shape)) for shape in ([2], [], [3, 2]))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(vector) + scalar + tf.reduce_sum(tf.gather(table, [0, 2]))
        variables = [vector, scalar, table]
        return dmp.DistributedGradientTape(tape).gradient(loss, variables)

    collectives = collectives_of(step, tmp_path)
    assert len(collectives) == 1 and differences([collectives]) == []


def test_two_gradients_of_one_lookup(monkeypatch, tmp_path):
    """Horovod does not distinguish the name scopes of the two gradients."""
    world = TracedRank(1, 2, 1, 2)
    set_up(monkeypatch, world)
    layer = two_tables(world)

    @tf.function
    def step():
        with tf.GradientTape(persistent=True) as tape:
            first, second = (tf.reduce_sum(vectors**2) for vectors in layer(IDS))
        for loss in (first, second):
            with tf.name_scope(f"scope_of_{loss.op.name}"):
                tape.gradient(loss, layer.trainable_variables)

    names = collectives_of(step, tmp_path)
    assert {"tables.e.1.vectors.gradient", "tables.e.1.vectors.gradient.2"} < set(names)


def inner_function(monkeypatch):
    """A layer of rank 1 of 2, and a function that another one calls for the vectors of ids."""
    world = TracedRank(1, 2, 1, 2)
    set_up(monkeypatch, world)
    layer = two_tables(world)
    return layer, tf.function(lambda ids: layer(ids)[0])


def test_sequence_of_inner_function_calls(monkeypatch, tmp_path):
    layer, inner = inner_function(monkeypatch)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(inner(IDS)) + tf.reduce_sum(inner(IDS[::-1]) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    collectives = collectives_of(step, tmp_path)
    assert len(collectives) == 6
    assert "tables.e.1.vectors" in collectives["tables.e.1.ids (use 2)"].after


def test_sequence_of_the_gradients_of_inner_function_calls(monkeypatch, tmp_path):
    """Two gradients, neither of which needs the other."""
    layer, inner = inner_function(monkeypatch)

    @tf.function
    def step():
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(inner(IDS)), tf.reduce_sum(inner(IDS[::-1]))
        return [tape.gradient(loss, layer.trainable_variables) for loss in losses]

    collectives = collectives_of(step, tmp_path)
    assert len(collectives) == 6
    gradient = "tables.e.1.vectors.gradient"
    assert gradient in collectives[f"{gradient} (use 2)"].after
