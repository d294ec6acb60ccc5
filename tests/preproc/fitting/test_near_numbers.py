"""Texts of which nearly all are numbers: formats, spellings of missing values, codes."""

import pytest

from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.fitting.infer import NUMBERS
from preproc.fitting.near_numbers import INFINITY, refuse_near_numbers

FRACTIONS = [f"{i}.5" for i in range(400)]
THOUSANDS, COMMA = "thousands separators", "a decimal comma"


@pytest.fixture
def near(duckdb, read, count):
    """Returns `NearNumbers` of texts, and the message of the error."""

    def measure(values):
        table = read("x,y\n" + "".join(f'"{value}",1\n' for value in values))
        _, facts = count(table)
        result, message = facts.near_numbers, ""
        if result is not None and result.is_error:
            with pytest.raises(ValueError, match="column 'x'") as error:
                refuse_near_numbers(duckdb, table, "x", result, MISSING_VALUES)
            message = str(error.value)
        return result, message

    return measure


def test_few_other_texts(near):
    """The most frequent one is named with its row, the others after it."""
    values = [*FRACTIONS[:19], "?", "-", "", *FRACTIONS[19:], "abc", "?"]
    result, message = near(values)
    assert (result.others, result.number_format) == (("?", "abc"), "")
    assert result.share == 400 / 403
    assert (
        "row 20 (" in message and "99.3% of the values are numbers, but not '?', 'abc'" in message
    )
    assert "--missing_values='?,abc'" in message and "--categorical x" in message


@pytest.mark.parametrize(
    ("values", "others"),
    [
        ([*FRACTIONS, *"abcde"], 5),
        ([*FRACTIONS, *"abcdefg"], 6),  # the first six of more: codes
        ([*FRACTIONS, *["?"] * 22], None),  # less than 95 % are numbers
        ([*map(str, range(64)), *map(str, range(64)), "?"], None),  # few numbers
        ([*map(str, range(65)), *map(str, range(65)), "?"], 1),
        ([*map(str, range(20)), "?"], None),
        ([f"{i:05}" for i in range(999)] + ["none"], None),  # with leading zeros
        (["a", "b"] * 50, None),
    ],
)
def test_numbers_and_others(values, others, near):
    result, message = near(values)
    assert (result and len(result.others)) == others
    assert bool(message) == (others is not None and others <= 5)


@pytest.mark.parametrize(
    ("values", "number_format", "wanted"),
    [
        ([f"{i * 37:,}" for i in range(100)], THOUSANDS, "got '1,036'"),
        ([f"{i},50" for i in range(1, 12)], COMMA, "got '1,50'"),
        ([f"{i},50" for i in range(10)], None, ""),  # few
        ([f"{i}.{i:03},25" for i in range(1, 30)], THOUSANDS, "got '1.001,25'"),
        ([f"{i}.5%" for i in range(30)], "a percent sign", "got '0.5%'"),
        ([f"${i},000.5" for i in range(1, 30)], "a currency", "got '$1,000.5'"),
        ([f"{i}.5" for i in range(29)] + ["1,250.5"], THOUSANDS, "got '1,250.5'"),
        ([f"{i}-{i + 1}" for i in range(99)], None, ""),
    ],
)
def test_formats(values, number_format, wanted, near):
    result, message = near(values)
    assert (result and result.number_format) == number_format
    assert wanted in message


def test_infinity(near):
    result, message = near([f"{i}.5" for i in range(29)] + ["-Inf"])
    assert (result.others, result.number_format) == (("-Inf",), INFINITY)
    assert "row 30 (" in message and "but not '-Inf' (infinite)" in message
    assert "replace it by a finite number, or --missing_values=-Inf" in message


def test_spelling_that_the_flag_cannot_have(near):
    _, message = near([*FRACTIONS, "n/a, unknown"])
    assert "--missing_values" not in message and "--categorical x" in message


@pytest.mark.parametrize(
    ("values", "are_numbers"),
    [(["12E5", "100", "3e2"], False), (["12E5", "1.5"], True), (["12E+5", "100"], True)],
)
def test_exponents_in_codes(values, are_numbers, count, read):
    _, facts = count(read("x,y\n" + "".join(f"{value},1\n" for value in values)))
    assert (facts.kind == NUMBERS) == are_numbers
