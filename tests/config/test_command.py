"""Command lines of commands: flags of a dataclass."""

from dataclasses import MISSING, dataclass
from pathlib import Path

import pytest

from config import command
from config.command import CommandOptions
from config.flag import flag, requires


@dataclass(frozen=True)
class SortOptions(CommandOptions):
    files: tuple[Path, ...] = flag(MISSING, "files to sort", is_positional=True, spaced=True)
    output: Path = flag(MISSING, "sorted rows", alias="--to")
    order: str = flag("rows", "order", choices=("rows", "random"))
    seed: int = flag(0, "of the order", at_least=0, needs=(requires("order", "random"),))
    widths: tuple[int, ...] = flag((), "widths of columns", at_least=1)
    setting: tuple[str, ...] = flag((), "a setting", is_repeated=True)
    memory_bytes: int = flag(lambda: 7, "memory", parse=lambda text: int(text, 16))
    share: float | None = flag(None, "share of rows, 100 % by default", above=0, at_most=1)
    fast: bool = flag(False, "sort faster")
    check: bool = flag(True, "check the rows")


def parse(line: str) -> SortOptions:
    return command.parse(SortOptions, line.split(), "tools.sort", "Sorts rows.")


def test_values():
    options = parse(
        "a,b.csv c --to d --order=random --seed 3 --widths 1,2 --setting x=1,2 --setting y "
        "--memory ff --share 0.5 --fast --no-check"
    )
    assert options == SortOptions(
        files=(Path("a,b.csv"), Path("c")), output=Path("d"), order="random", seed=3,
        widths=(1, 2), setting=("x=1,2", "y"), memory_bytes=255, share=0.5, fast=True, check=False,
    )  # fmt: skip
    defaults = parse("a --output b")
    assert defaults == SortOptions((Path("a"),), Path("b"))
    assert (defaults.memory_bytes, defaults.check, defaults.widths) == (7, True, ())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a", "the following arguments are required: --output"),
        ("a --to b --unknown", "unrecognized arguments: --unknown"),
        ("a --to b --widt 1", "unrecognized arguments: --widt"),
        ("a --to b --order x", "--order: expected one of rows, random, got x"),
        ("a --to b --seed 3", "--seed is only read with --order random: leave it out otherwise"),
        ("a --to b --order random --seed=-1", "--seed: expected at least 0, got -1"),
        ("a --to b --widths 1,x", "--widths: expected integers with commas between them, got"),
        ("a --to b --widths 1,0", "--widths: expected at least 1, got 0"),
        ("a --to b --share x", "--share: expected a number, got 'x'"),
        ("a --to b --share nan", "--share: expected a finite number, got nan"),
        ("a --to b --memory z", "--memory: "),
    ],
)
def test_errors(line, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        parse(line)


def test_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        parse("--help")
    text = capsys.readouterr().out
    assert "python -m tools.sort" in text and "Sorts rows." in text
    assert "--order {rows,random}" in text and "order (default rows)" in text
    assert "100 % by default" in text and "--output PATH, --to PATH" in text


@dataclass(frozen=True)
class _Near(CommandOptions):
    """Sends to a server nearby."""

    where: str = flag("near", "place", choices=("near", "far"))
    name: str = flag("x", "of the message")


@dataclass(frozen=True)
class _Far(_Near):
    """Sends to a server far away."""

    retries: int = flag(1, "further attempts", at_least=0)


def test_variants(capsys):
    def read(line: str) -> _Near:
        variants = {"near": _Near, "far": _Far}
        return command.parse_variant(variants, "where", line.split(), "tools.send", "Sends.")

    assert read("--name y") == _Near(name="y")
    assert read("--where far --retries 2") == _Far(where="far", retries=2)
    with pytest.raises(ValueError, match="^--retries is only read with --where far: leave"):
        read("--retries 2")
    with pytest.raises(ValueError, match="^--where: expected one of near, far, got x"):
        read("--where x")
    with pytest.raises(SystemExit):
        read("--help")
    assert "--where far:" in capsys.readouterr().out


def test_subcommands(capsys):
    def read(line: str) -> _Near:
        return command.parse({"near": _Near, "far": _Far}, line.split(), "tools.send", "Sends.")

    assert read("far --retries 2") == _Far(retries=2)
    with pytest.raises(ValueError, match="unrecognized arguments: --retries"):
        read("near --retries 2")
    with pytest.raises(ValueError, match="required: COMMAND"):
        read("")
    with pytest.raises(SystemExit):
        read("--help")
    assert "Sends to a server far away." in capsys.readouterr().out
