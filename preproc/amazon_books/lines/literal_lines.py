"""Metadata lines in the form of 2014: Python literals, such as {'asin': '1', 'price': None, ...}.

They are read without `eval`. One regular expression matches a whole line as Python itself writes
it, with nothing nested deeper than lists in a list, and captures the two required values. Any other
line goes to `ast.literal_eval`, which takes 16 times as long (90 us instead of 5.5 us per line, a
fourth of the whole preparation of generated reviews).
"""

import ast
import re


def _grammar() -> re.Pattern:
    escape = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2})"
    string = rf"""(?:'[^'\\\x00-\x1f]*(?:{escape}[^'\\\x00-\x1f]*)*'"""
    string += rf"""|"[^"\\\x00-\x1f]*(?:{escape}[^"\\\x00-\x1f]*)*")"""
    # A key without escapes, so that it is certain which it is.
    key = r"""(?:'(?!asin'|categories')[^'\\\x00-\x1f]*'|"(?!asin"|categories")[^"\\\x00-\x1f]*")"""
    number = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?"
    value = rf"(?:{string}|{number}|None|True|False)"
    for _ in range(2):
        pair = rf"{string}: {value}"
        value = (
            rf"(?:{string}|\[(?:{value}(?:, {value})*)?\]|\{{(?:{pair}(?:, {pair})*)?\}}"
            rf"|{number}|None|True|False)"
        )
    # Of a group that matches repeatedly, the last match is kept: the last name of the last list.
    # A second item, or second categories, is left to slower readers: (?(1)(?!)) matches nothing
    # once group 1 has matched.
    names = rf"\[(?:({string})(?:, (?=['\"])|(?=\])))+\]"
    item = rf"""(?(1)(?!))(?:'asin'|"asin"): ({string})"""
    categories = r"""(?(2)(?!))(?:'categories'|"categories"): """
    categories += rf"\[(?:{names}(?:, (?=\[)|(?=\])))+\]"
    field = rf"(?:{key}: {value}|{item}|{categories})"
    return re.compile(rf"\{{(?:{field}(?:, (?=['\"])|(?=\}})))+\}}")


_LINE = _grammar()


def parse_quickly(line: str) -> tuple[str, str | None] | None:
    """The values of 'asin' and the last name of the last list of 'categories' (None if it is not
    there) of a line in the usual form; None for any other line, which may still be a good one."""
    match = _LINE.fullmatch(line)
    if match is None or match[1] is None:
        return None
    item, category = match.groups()
    return _text(item), None if category is None else _text(category)


def parse(line: str):
    """The value of any literal.

    Raises:
        ValueError: the line is not a literal.
    """
    try:
        return ast.literal_eval(line)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _text(literal: str) -> str:
    """The text that a string literal stands for."""
    return ast.literal_eval(literal) if "\\" in literal else literal[1:-1]
