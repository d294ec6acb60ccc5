"""Prepared Criteo data set: its files, its feature spec, its summary."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import CHECKS_FILE, ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from preproc.criteo.column_encodings import (
    BINS,
    CATEGORICALS,
    LABEL,
    NUM_BINS,
    NUMERICALS,
    label_encoding,
    number_encodings,
)
from preproc.criteo.output.binary_files import (
    LABEL_DTYPE,
    NUMERICAL_DTYPE,
    ColumnFiles,
    SplitLayout,
)
from preproc.criteo.output.splits import Split
from preproc.encoding import encoder_folder
from preproc.encoding.encoder import Encoder


@dataclass(frozen=True)
class EncodedFiles:
    """Files of features that an encoder makes.

    Attributes:
        encoder: of these features.
        files: of one layout.
        features: those of each file; a row of it has their values in this order.
    """

    encoder: Encoder
    files: tuple[ColumnFiles, ...]
    features: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> list[str]:
        """Source columns."""
        return list(dict.fromkeys(encoding.column for encoding in self.encoder.features))

    def values(self, rows: pa.Table | pa.RecordBatch) -> list[np.ndarray]:
        """Returns what each file stores of rows, [n, width]."""
        encoded = self.encoder.encode(rows)
        return [
            np.concatenate([encoded[name] for name in names], axis=1) for names in self.features
        ]

    def write_at(self, position: int, rows: pa.RecordBatch) -> dict[str, int]:
        """Writes rows from a position of the stored log on; returns how many values of the first
        file are not 0, by split."""
        positions = position + np.arange(rows.num_rows)
        values = self.values(rows)
        for file, array in zip(self.files, values, strict=True):
            file.write_at(positions, array)
        return {
            split.name: int(
                np.count_nonzero(values[0][(positions >= split.start) & (positions < split.stop)])
            )
            for split in self.files[0].layout.splits
        }


def numerical_files(layout: SplitLayout, *, with_labels: bool, with_bins: bool) -> EncodedFiles:
    """Returns the files of labels (one bool per row), numerical features (13 float16) and bins."""
    bins = BINS if with_bins else ()
    labels = (ColumnFiles(layout, "label.bin", LABEL_DTYPE),) if with_labels else ()
    numericals = ColumnFiles(layout, "numerical.bin", NUMERICAL_DTYPE, len(NUMERICALS))
    return EncodedFiles(
        Encoder(
            ((label_encoding(),) if with_labels else ()) + number_encodings(with_bins=with_bins)
        ),
        (*labels, numericals, *(categorical_files(layout, name, NUM_BINS) for name in bins)),
        (*([(LABEL,)] if with_labels else []), NUMERICALS, *((name,) for name in bins)),
    )


def categorical_files(layout: SplitLayout, column: str, cardinality: int) -> ColumnFiles:
    """One categorical column: one id a row, 0 to cardinality - 1."""
    return ColumnFiles(layout, f"{column}.bin", fs.smallest_id_dtype(cardinality).newbyteorder("<"))


def all_files(splits: tuple[Split, ...], *, with_labels: bool, with_bins: bool) -> list[Path]:
    """Every file of a data set, relative to its folder."""
    names = [*([LABEL] if with_labels else []), "numerical", *CATEGORICALS]
    names += BINS if with_bins else ()
    columns = [Path(split.name, f"{name}.bin") for split in splits for name in names]
    encoder = encoder_folder.files(Path(ENCODER_FOLDER), CATEGORICALS)
    return [Path(SPEC_FILE), Path(CHECKS_FILE), *columns, *encoder]


def feature_spec(
    folder: Path,
    splits: tuple[Split, ...],
    cardinalities: dict[str, int],
    metadata: dict,
    *,
    with_labels: bool,
) -> FeatureSpec:
    """The data set's feature spec. The same input and options give the same on every engine.

    cardinalities: of the categorical features, in their channel's order.
    """
    features = {LABEL: {"dtype": LABEL_DTYPE.name}}
    features |= {name: {"dtype": NUMERICAL_DTYPE.name} for name in NUMERICALS}
    features |= {
        name: {"dtype": fs.smallest_id_dtype(cardinality).name, "cardinality": cardinality}
        for name, cardinality in cardinalities.items()
    }
    files = {LABEL: [LABEL]} if with_labels else {}
    files |= {"numerical": list(NUMERICALS), **{name: [name] for name in cardinalities}}
    sources = {
        split.name: [
            Chunk("split_binary", names, [f"{split.name}/{file}.bin"])
            for file, names in files.items()
        ]
        for split in splits
    }
    channels = {
        fs.NUMERICAL_CHANNEL: list(NUMERICALS),
        fs.CATEGORICAL_CHANNEL: list(cardinalities),
        fs.LABEL_CHANNEL: [LABEL],
    }
    return FeatureSpec(features, sources, channels, metadata, folder, str(folder / SPEC_FILE))


def summary(folder: Path, spec: FeatureSpec, elapsed_s: float) -> str:
    """A few lines on what was made, for people."""
    metadata = spec.metadata
    sizes = [path.stat().st_size for path in folder.rglob("*.bin")]
    cardinalities = spec.cardinalities(fs.CATEGORICAL_CHANNEL)
    lines = [f"{folder} is ready"]
    for name, rows in metadata["rows"].items():
        rate = metadata.get("click_rate", {}).get(name)
        shown = "no labels" if rate is None else f"click rate {rate:.4f}"
        lines.append(f"  {name}: {rows:,} rows, {shown}")
    lines += [
        f"  cardinalities: {', '.join(map(str, cardinalities))} (sum {sum(cardinalities):,})",
        f"  malformed lines left out: {metadata['bad_lines']:,}",
        f"  {sum(sizes):,} bytes in {len(sizes)} files; {elapsed_s:.1f} s, "
        f"{sum(metadata['rows'].values()) / elapsed_s:,.0f} rows/s",
    ]
    return "\n".join(lines)
