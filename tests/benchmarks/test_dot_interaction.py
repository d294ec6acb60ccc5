import pytest

from benchmarks import dot_interaction as benchmark


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(benchmark, "BATCH", 64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("apart", [False, True])
def test_sides_in_turn(small, dtype, apart):
    functions = benchmark.interactions(dtype, apart)
    assert set(functions) == (
        {"op", "dot_tensorflow"} if apart else {"op", "dot_tensorflow", "plain"}
    )
    sides = {name: benchmark.InteractionSide(f, dtype, apart) for name, f in functions.items()}
    benchmark.check_same_results(sides)
    times = benchmark.measure_calls(sides, rounds=3)
    assert {len(values) for values in times.values()} == {3}
    assert times.keys() == {(n, w) for n in functions for w in ("forward", benchmark.BOTH)}


def test_side_with_other_results(small):
    functions = benchmark.interactions("float32", apart=False)
    wrong = lambda features, bottom: functions["op"](features, 2 * bottom)  # noqa: E731
    sides = {
        "op": benchmark.InteractionSide(functions["op"], "float32", False),
        "plain": benchmark.InteractionSide(wrong, "float32", False),
    }
    with pytest.raises(RuntimeError, match="plain and op do not compute the same"):
        benchmark.check_same_results(sides)


def test_ratios_within_a_round():
    times = {
        ("op", "forward"): [1.0, 1.0, 1.0],
        ("op", benchmark.BOTH): [2.0, 4.0, 8.0],
        ("plain", "forward"): [3.0, 3.0, 3.0],
        ("plain", benchmark.BOTH): [8.0, 16.0, 32.0],
    }
    table = benchmark.calls_table(times, {"op": 3.0, "plain": 170.0})
    assert table[2] == "| op | 1.0 [1.0, 1.0] | 4.0 [3.0, 6.0] |  | 3 MiB |"
    assert table[3].startswith("| plain | 3.0 [3.0, 3.0] | 16.0 [12.0, 24.0] | 4.00 [4.00, 4.00] x")
