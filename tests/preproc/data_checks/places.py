"""Places where data enters: the commands that read rows, with the flags of small tables."""

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dataloading.spec.data_checks import Finding, read_findings
from dataloading.spec.data_set_files import CHECKS_FILE, ENCODER_FOLDER
from deployment.predict.__main__ import main as predict
from preproc.amazon_books.__main__ import main as amazon_books
from preproc.criteo.__main__ import main as criteo
from preproc.encoding.encoder import Encoder
from preproc.movielens.__main__ import main as movielens
from preproc.transcode.__main__ import main as transcode
from tests.preproc.contents import contents
from tests.preproc.data_checks import tables
from tests.preproc.data_checks.tables import Table

CLICKS, EVENTS, CRITEO = "clicks", "events", "criteo"  # kinds of tables
CLEAN = {CLICKS: tables.clicks, EVENTS: tables.events, CRITEO: tables.criteo}
_TRAINED = "trained"  # folder of what was made from clean rows before


class Outcome(NamedTuple):
    status: int
    output: str
    errors: str
    folder: Path

    @property
    def findings(self) -> list[Finding]:
        return read_findings(self.folder)

    def result(self) -> dict[str, bytes]:
        """Returns the content of all files but those of the checks; scores as a file."""
        if self.folder.is_file():
            return {"scores": self.folder.read_bytes()}
        return {n: own for n, own in contents(self.folder).items() if n != CHECKS_FILE}

    def rows(self) -> dict[str, bytes]:
        return {n: own for n, own in self.result().items() if n.endswith(".bin") or n == "scores"}


@dataclass(frozen=True)
class Place:
    name: str
    table: str
    command: Callable[[list[str]], int]
    file: str
    input: str
    flags: tuple[str, ...]
    engine: tuple[str, ...] = ()

    def write(self, folder: Path, table: Table) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / self.file
        is_log = self.table == CRITEO
        return tables.write_csv(path, table, "\t" if is_log else ",", header=not is_log)

    def _completed(self, flag: str) -> str:
        if flag == _MODEL:
            return f"--model={_model()}"
        return flag.replace("{trained}", str(_trained(self.table))) if "{" in flag else flag

    def run(self, path: Path, output: Path, *flags: str) -> Outcome:
        own = [self._completed(flag) for flag in self.flags]
        target = output.with_suffix(".npy") if self.command is predict else output
        words = [f"{self.input}={path}", f"--output={target}", *own, *self.engine, *flags]
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            status = self.command(words)
        return Outcome(status, printed.getvalue(), errors.getvalue(), target)


_HISTORIES = ("--user_column=user", "--item_column=item", "--time_column=time", "--min_events=5")
_HISTORIES += ("--item_features=genre",)
_RATINGS = ("--user_column=user", "--item_column=item", "--time_column=time")
_RATINGS += ("--min_ratings=5", "--valid_negative=5")
_PAIRS = ("--user=user", "--item=item", "--drop=time,genre")
_LOG = ("--holdout_fraction=0.2", "--frequency_threshold=2", "--output_ordering=input")
_KNOWN = "--vocabulary={trained}/data"
_MODEL = "--model={model}"
_SPARK = ("--engine=spark", "--master=local[2]")


def _place(name: str, table: str, command, file: str, *flags: str, input="--input") -> Place:
    return Place(name, table, command, file, input, flags)


_DUCKDB = (
    _place("csv", CLICKS, transcode, "rows.csv", "--label=click"),
    _place("vocabulary", CLICKS, transcode, "rows.csv", _KNOWN),
    _place("grow", CLICKS, transcode, "rows.csv", _KNOWN, "--grow"),
    _place("predict", CLICKS, predict, "rows.csv", _MODEL),
    _place("interactions", EVENTS, transcode, "log.csv", *_PAIRS),
    _place("ratings", EVENTS, movielens, "log.csv", *_RATINGS),
    _place(
        "histories", EVENTS, amazon_books, "log.csv", "--input_format=tables", *_HISTORIES,
        input="--interactions",
    ),
    _place("criteo", CRITEO, criteo, "log.txt", *_LOG),
    _place(
        "criteo_encode_only", CRITEO, criteo, "log.txt", "--encode_only", _KNOWN,
    ),
)  # fmt: skip
PLACES = {place.name: place for place in _DUCKDB}
SPARK = {
    f"{name}_spark": replace(PLACES[name], name=f"{name}_spark", engine=_SPARK)
    for name in ("csv", "vocabulary", "interactions", "ratings", "histories")
}
PLACES |= SPARK
NEW_ROWS = ("vocabulary", "grow", "predict")
LOGS = ("interactions", "ratings", "histories")

_folders: dict[str, Path] = {}


def use_folder(folder: Path) -> None:
    """Sets the folder in which data sets and models of clean rows are made."""
    _folders.clear()
    _folders[_TRAINED] = folder
    _trained.cache_clear()
    _model.cache_clear()


@functools.cache
def _trained(table: str) -> Path:
    """Returns the folder with `data`, of clean rows, and `model`, of those of clicks."""
    folder = _folders[_TRAINED] / table
    place = PLACES["criteo" if table == CRITEO else "csv"]
    outcome = place.run(place.write(folder, CLEAN[table]()), folder / "data")
    assert outcome.status == 0, outcome.errors
    return folder


@functools.cache
def _model() -> Path:
    """Returns a repository with a model of the clean rows of clicks."""
    from tests.preproc.data_checks.deployed_model import write_model

    folder = _trained(CLICKS)
    write_model(folder / "model/1", Encoder.load(folder / "data" / ENCODER_FOLDER))
    return folder / "model"


def is_of_scores(place: Place) -> bool:
    return place.command is predict


def clean(place: str) -> Table:
    """Returns clean rows of a place; for new rows, others than those of the training."""
    table = PLACES[place].table
    return tables.clicks(1) if place in NEW_ROWS else CLEAN[table]()
