"""What a prepared Criteo data set consists of: its files, its feature spec, its summary."""

from collections.abc import Iterable
from pathlib import Path

from dataloading.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    FeatureSpec,
    smallest_id_dtype,
)
from preproc.criteo.binary_files import (
    LABEL_DTYPE,
    NUM_BINS,
    NUMERICAL_DTYPE,
    ColumnFiles,
)
from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.criteo.splits import Split
from preproc.criteo.staging import SPEC_FILE

LABEL = "label"
NUMERICALS = tuple(f"num_{i}" for i in range(NUM_NUMERICAL))
CATEGORICALS = tuple(f"cat_{i}" for i in range(NUM_CATEGORICAL))
BINS = tuple(f"bin_{i}" for i in range(NUM_NUMERICAL))  # the numericals as categoricals
VOCABULARY_FOLDER = "vocabulary"


def label_files(folder: Path, splits: tuple[Split, ...]) -> ColumnFiles:
    """The click labels: one bool a row."""
    return ColumnFiles(folder, "label.bin", splits, LABEL_DTYPE)


def numerical_files(folder: Path, splits: tuple[Split, ...]) -> ColumnFiles:
    """The numericals: 13 float16 a row, one after the other."""
    return ColumnFiles(folder, "numerical.bin", splits, NUMERICAL_DTYPE, NUM_NUMERICAL)


def categorical_files(
    folder: Path, splits: tuple[Split, ...], column: str, cardinality: int
) -> ColumnFiles:
    """One categorical column: one id a row, 0 to cardinality - 1."""
    return ColumnFiles(
        folder, f"{column}.bin", splits, smallest_id_dtype(cardinality).newbyteorder("<")
    )


def bin_files(folder: Path, splits: tuple[Split, ...]) -> list[ColumnFiles]:
    """The numericals' bins: a file a column, one int8 id a row."""
    return [categorical_files(folder, splits, name, NUM_BINS) for name in BINS]


def vocabulary_file(column: str) -> Path:
    """The column's values, relative to the data set; line N is `value<tab>count` of id N."""
    return Path(VOCABULARY_FOLDER, f"{column}.tsv")


def all_files(splits: tuple[Split, ...], with_bins: bool) -> list[Path]:
    """Every file of a data set, relative to its folder."""
    names = [LABEL, "numerical", *CATEGORICALS, *(BINS if with_bins else ())]
    columns = [Path(split.name, f"{name}.bin") for split in splits for name in names]
    return [Path(SPEC_FILE), *columns, *(vocabulary_file(column) for column in CATEGORICALS)]


def feature_spec(
    folder: Path, splits: tuple[Split, ...], cardinalities: dict[str, int], metadata: dict
) -> FeatureSpec:
    """The data set's feature spec. The same input and options give the same on every engine.

    cardinalities: of the categorical features, in their channel's order.
    """
    features = {LABEL: {"dtype": LABEL_DTYPE.name}}
    features |= {name: {"dtype": NUMERICAL_DTYPE.name} for name in NUMERICALS}
    features |= {
        name: {
            "dtype": smallest_id_dtype(cardinalities[name]).name,
            "cardinality": cardinalities[name],
        }
        for name in cardinalities
    }
    content = {
        "feature_spec": features,
        "source_spec": {split.name: _chunks(split.name, cardinalities) for split in splits},
        "channel_spec": {
            NUMERICAL_CHANNEL: list(NUMERICALS),
            CATEGORICAL_CHANNEL: list(cardinalities),
            LABEL_CHANNEL: [LABEL],
        },
        "metadata": metadata,
    }
    return FeatureSpec.from_dict(content, folder, origin=str(folder / SPEC_FILE))


def _chunks(mapping: str, categoricals: Iterable[str]) -> list[dict]:
    def chunk(features, name):
        return {"type": "split_binary", "features": features, "files": [f"{mapping}/{name}.bin"]}

    return [
        chunk([LABEL], LABEL),
        chunk(list(NUMERICALS), "numerical"),
        *(chunk([name], name) for name in categoricals),
    ]


def summary(folder: Path, spec: FeatureSpec, elapsed_s: float) -> str:
    """A few lines on what was made, for people."""
    metadata = spec.metadata
    sizes = [path.stat().st_size for path in folder.rglob("*.bin")]
    cardinalities = spec.cardinalities(CATEGORICAL_CHANNEL)
    lines = [f"{folder} is ready"]
    for name, rows in metadata["rows"].items():
        lines.append(f"  {name}: {rows:,} rows, click rate {metadata['click_rate'][name]:.4f}")
    lines += [
        f"  cardinalities: {', '.join(map(str, cardinalities))} (sum {sum(cardinalities):,})",
        f"  malformed lines left out: {metadata['bad_lines']:,}",
        f"  {sum(sizes):,} bytes in {len(sizes)} files; {elapsed_s:.1f} s, "
        f"{sum(metadata['rows'].values()) / elapsed_s:,.0f} rows/s",
    ]
    return "\n".join(lines)
