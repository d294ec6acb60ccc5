"""The feature spec of a data set by the path of its folder, and messages about other paths."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.spec.rules import listing
from runtime.files.paths import absent

CLICKS, INTERACTIONS, HISTORIES = "clicks", "interactions", "histories"
# Family -> its recipes, what its rows are, and the channels that only it has.
_FAMILIES = {
    CLICKS: ("dlrm.py or dcnv2.py", "features and labels", ("numerical", "categorical")),
    INTERACTIONS: ("ncf.py", "users and items", ("item",)),
    HISTORIES: ("sim.py", "histories of users", ("target_item_features",)),
}
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".json", ".jsonl", ".ndjson")
_TABLE_ENDINGS = tuple(f"{end}{packed}" for end in _TABLES for packed in ("", ".gz", ".zst"))


@dataclass(frozen=True)
class _RawData:
    """Raw data of a public data set.

    Attributes:
        name: of the data, for messages.
        patterns: names of its files, or paths in its folder.
        family: of the data set that is made of it.
        command: arguments of `python -m` that prepare it, with `{path}` for the raw data.
    """

    name: str
    patterns: tuple[str, ...]
    family: str
    command: str


_RAW_DATA = (
    _RawData("Criteo's log", ("day_*", "train*.txt"), CLICKS, "preproc.criteo --input {path}"),
    _RawData(
        "ratings", ("ratings.csv*", "ratings.dat*", "*.train.rating*"), INTERACTIONS,
        "preproc.movielens --input {path}",
    ),
    _RawData(
        "reviews", ("reviews_*.json*",), HISTORIES,
        "preproc.amazon_books --amazon_dataset_path {path}",
    ),
    _RawData(
        "Parquet files of histories", ("train/*.parquet",), HISTORIES,
        "preproc.amazon_books.parquet_to_tfrecord --amazon_dataset_path {path} "
        "--tfrecord_output_dir DATA",
    ),
)  # fmt: skip
_TABLE_COMMANDS = {
    CLICKS: "preproc.transcode --input {path} --label COLUMN --split 0.8,0.1,0.1",
    INTERACTIONS: "preproc.transcode --input {path} --user COLUMN --item COLUMN --split "
    "0.8,0.1,0.1",
    HISTORIES: "preproc.histories --interactions {path} --user_column "
    "COLUMN --item_column COLUMN --time_column COLUMN",
}


def find_feature_spec(
    folder: str | Path, name: str = SPEC_FILE, flag: str = "", family: str = CLICKS
) -> Path:
    """Returns the file of the feature spec in the folder of a data set.

    Args:
        name: of the file.
        flag: that names the folder, for messages.
        family: of the data set, for messages.

    Raises:
        ValueError: the path is not that of a data set; the message names a preparation.
    """
    path = Path(folder)
    if (path / name).is_file():
        return path / name
    flag = f"{flag} " if flag else ""
    if not path.exists():
        raise ValueError(f"{flag}{absent(folder)}")
    if (path / SPEC_FILE).is_file():  # and the name is another
        raise ValueError(absent(path / name))
    content = _other(path, family, flag)
    raise ValueError(f"{flag}{path}: expected the folder of a data set, got {content}")


def families_of(spec: FeatureSpec) -> list[str]:
    """Returns the families whose channels a data set has."""
    return [name for name, (_, _, own) in _FAMILIES.items() if {*own} & {*spec.channel_spec}]


def check_family(spec: FeatureSpec, family: str, recipe: str) -> None:
    """Raises ValueError for a data set of another family than a recipe reads."""
    kinds = families_of(spec)
    if family in kinds or not kinds:
        return
    script, rows, _ = _FAMILIES[kinds[0]]
    raise ValueError(
        f"{spec.origin}: expected a data set of {_FAMILIES[family][1]} for {recipe}.py, got one of "
        f"{rows}, which {script} reads (channels {listing(spec.channel_spec)}): train {script} on "
        f"it, or prepare the raw data for {recipe}.py with {_TABLE_COMMANDS[family].split()[0]}"
    )


def _other(path: Path, family: str, flag: str) -> str:
    """Returns what an existing path is that has no feature spec, and what to do."""
    if path.is_file() and _describes_data(path):
        other = f" --feature_spec {path.name}" if path.name != SPEC_FILE else ""
        return f"its feature spec: give its folder, {path.parent}{other}"
    specs = [] if path.is_file() else sorted(filter(_describes_data, path.glob("*.y*ml")))
    if specs:
        remedy = f"add --feature_spec {specs[0].name}"
        if flag.startswith("--vocabulary"):
            remedy = f"give {specs[0]}"
        return f"a folder whose feature spec has another name: {remedy}"
    for parent in itertools.islice(path.absolute().parents, 2):
        if path.is_dir() and (parent / SPEC_FILE).is_file():
            return f"a part of a data set: give {parent}"
    if children := [file.parent for file in sorted(path.glob(f"*/{SPEC_FILE}"))]:
        return f"a folder that has data sets in it: give one of them, {listing(children)}"
    if raw := _raw_data(path, family):
        return raw
    if path.is_file():
        return "a file: give the --output folder of a preparation, such as preproc.transcode"
    if any(path.glob("checkpoint.json")) or any(path.glob("*/checkpoint.json")):
        return "checkpoints: give them with --restore_checkpoint_path, and the data set here"
    names = [file.name for file in sorted(path.iterdir())]
    if not names:
        return "an empty folder: give the --output folder of a preparation, or repeat it"
    return (
        f"a folder without {SPEC_FILE}, which has {listing(names)}: give the --output folder of a "
        "preparation, such as preproc.transcode"
    )


def _describes_data(file: Path) -> bool:
    return file.suffix in (".yaml", ".yml") and "channel_spec" in file.read_text(errors="replace")


def _raw_data(path: Path, family: str) -> str:
    """Returns what raw data is, and the command that prepares it; empty for other content."""
    if path.name == TRAIN and any(_matches(path.parent, ("train/*.parquet",))):
        path = path.parent
    known = [raw for raw in _RAW_DATA if any(_matches(path, raw.patterns))]
    tables = [file for file in _files(path) if file.name.lower().endswith(_TABLE_ENDINGS)]
    own = next((raw for raw in known if raw.family in (family, HISTORIES)), None)
    if own is None and tables:
        own = _RawData("a table", (), family, _TABLE_COMMANDS[family])
    own = own or next(iter(known), None)
    if own is None:
        return ""
    if path.is_file() and "dataset_path" in own.command:
        path = path.parent
    command = own.command.format(path=path)
    command += "" if "DATA" in command else " --output DATA"
    reader = f" for {_FAMILIES[own.family][0]}" if own.family != family else ""
    return f"{own.name}: prepare it{reader}, then name the folder DATA here: python -m {command}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())


def _matches(path: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        if path.is_dir():
            yield from path.glob(pattern)
        elif path.match(pattern) and "/" not in pattern:
            yield path
