"""A data set from one format to another: split binaries to split TFRecords, and back.

    python -m dataloading.transcribe --src_dataset_path data/mine --dst_dataset_path data/records

Rows go through in batches, so memory does not grow with the data; the folder appears when it is
whole. Split binaries in the usual layout (docs/reference/file_formats.md) come back byte by byte.
"""

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from config.command import CommandOptions, parse
from config.flag import flag, requires
from dataloading.formats.open_chunk import TYPES_OF_FORMATS
from dataloading.formats.split_tfrecords.folder_format import spec_of_folders
from dataloading.formats.split_tfrecords.writer import SplitTFRecordsWriter
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.interactions.stored import stores_labels
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.ragged import Ragged
from dataloading.pipeline.sample_dataset import SampleDataset
from dataloading.spec import feature_spec as fs
from dataloading.spec.casts import cast_exactly
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE, VOCABULARY_FOLDER
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.rows import stored_spec
from runtime.cli import exit_status
from runtime.files.disk import write_errors_name
from runtime.files.outputs import DATA_SET
from runtime.files.staging import output_folder

_DEFAULT_PATH = "synthetic_dataset"  # of NVIDIA's tool


_KINDS = tuple(TYPES_OF_FORMATS)
_OF_RECORDS = (requires("dst_dataset_type", "split_tfrecords"),)


@dataclasses.dataclass(frozen=True)
class TranscribeOptions(CommandOptions):
    """Brings a data set from one format to another.

    Raises:
        ValueError: a value out of range.
    """

    src_dataset_path: str = flag(_DEFAULT_PATH, "folder of the data set", metavar="DIR")
    src_dataset_type: str = flag("tf_raw", "its format", choices=_KINDS)
    src_feature_spec: str = flag(SPEC_FILE, "file name in --src_dataset_path", metavar="FILE")
    src_batch_size: int = flag(65_536, "rows in memory at a time", at_least=1)
    dst_dataset_path: str = flag(
        _DEFAULT_PATH, "folder to make; must not hold files", metavar="DIR"
    )
    dst_dataset_type: str = flag("split_tfrecords", "its format", choices=_KINDS)
    dst_feature_spec: str = flag(SPEC_FILE, "file name in --dst_dataset_path", metavar="FILE")
    dst_prebatch_size: int = flag(
        65_536, "rows of a record of split TFRecords", at_least=1, needs=_OF_RECORDS
    )
    dst_batches_per_file: int | None = flag(
        None, "records of a file (default: all in one file)", at_least=1, needs=_OF_RECORDS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.dst_feature_spec).name != self.dst_feature_spec:
            raise ValueError(
                f"--dst_feature_spec is {self.dst_feature_spec}; expected a file name without a "
                "folder, the file is in --dst_dataset_path"
            )


def transcribe(options: TranscribeOptions) -> str:
    """Transcribes the data set; returns a report for people.

    Raises:
        ValueError: flags that contradict each other, a source that cannot be read, or rows that the
            other format cannot hold.
        OSError: a file could not be read or written.
    """
    source, target = Path(options.src_dataset_path), Path(options.dst_dataset_path)
    spec = FeatureSpec.from_yaml(source / options.src_feature_spec)
    if options.src_dataset_type == "split_tfrecords":
        spec = spec_of_folders(spec)
    types = TYPES_OF_FORMATS[options.src_dataset_type]
    loaders = {
        split: StoredDataset(
            spec, split, options.src_batch_size, types, with_labels=stores_labels(spec, split)
        )
        for split in spec.source_spec
    }
    layout = _usual_layout(spec, loaders, options)
    sources = {}
    with output_folder(target, "dataloading.transcribe", DATA_SET) as folder:
        for split, loader in loaders.items():
            num_samples = loader.num_samples
            if options.dst_dataset_type == "tf_raw":
                writer = _RawBinaryWriter(folder, split, layout, loader.columns)
            else:
                prebatch = options.dst_prebatch_size
                per_file = options.dst_batches_per_file or -(-num_samples // prebatch)
                sizes = {"prebatch": prebatch, "batches_per_file": per_file}
                writer = SplitTFRecordsWriter(folder, split, layout, loader.columns, **sizes)
            for start in range(0, num_samples, options.src_batch_size):
                writer.add(
                    loader.stored_samples(start, min(start + options.src_batch_size, num_samples))
                )
            sources[split] = writer.close()
        written = dataclasses.replace(layout, source_spec=sources, base_directory=folder)
        written.validate_files()
        with write_errors_name(folder / options.dst_feature_spec):
            written.to_yaml(folder / options.dst_feature_spec)
        for name in (ENCODER_FOLDER, VOCABULARY_FOLDER):
            if (source / name).is_dir():
                shutil.copytree(source / name, folder / name)
    report = [f"{split}: {loader.num_samples:,} rows" for split, loader in loaders.items()]
    if left_out := [name for name in spec.feature_spec if name not in layout.feature_spec]:
        report.append(f"left out, because no channel has them: {', '.join(left_out)}")
    return "\n".join([*report, f"written: {target / options.dst_feature_spec}"])


def _usual_layout(
    spec: FeatureSpec, loaders: dict[str, SampleDataset], options: TranscribeOptions
) -> FeatureSpec:
    """Returns the features of the three channels, in no file yet. In split binaries their hotness
    is that of the first row, where rows could differ."""
    channels = {
        channel: spec.channel_spec.get(channel, ())
        for channel in (fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, fs.LABEL_CHANNEL)
    }
    used = {feature for names in channels.values() for feature in names}
    features = {name: dict(keys) for name, keys in spec.feature_spec.items() if name in used}
    if options.dst_dataset_type == "tf_raw":
        loader = next(iter(loaders.values()))
        for column, row in zip(loader.columns, loader.stored_samples(0, 1), strict=True):
            if isinstance(row, Ragged) and len(row.values):
                features[column.feature]["hotness"] = len(row.values)
    return FeatureSpec(features, {}, channels, spec.metadata, origin=spec.origin)


class _RawBinaryWriter:
    def __init__(self, directory: Path, split: str, spec: FeatureSpec, columns: Sequence[Column]):
        self._spec, self._columns, self._num_samples = spec, columns, 0
        channels = {name: list(features) for name, features in spec.channel_spec.items()}
        layout = stored_spec(dict(spec.feature_spec), channels, [split]).to_dict()
        self._chunks = layout["source_spec"][split]
        if not any(column.role is Role.LABEL for column in columns):
            labels = channels[fs.LABEL_CHANNEL]
            self._chunks = [chunk for chunk in self._chunks if chunk["features"] != labels]
        (directory / split).mkdir()
        self._paths = [directory / chunk["files"][0] for chunk in self._chunks]
        for path in self._paths:
            path.touch()

    def add(self, arrays: list[np.ndarray | Ragged]) -> None:
        """Appends rows, one array per column."""
        rows, numericals = {}, []
        for column, array in zip(self._columns, arrays, strict=True):
            if column.role is Role.NUMERICAL:
                numericals.append(array)
            else:
                rows[column.feature] = self._dense(column.feature, array)
        if numericals:  # neighboring features are one array
            names = self._spec.channel(fs.NUMERICAL_CHANNEL)
            ends = np.cumsum([self._spec.hotness(name) for name in names])
            parts = np.split(np.concatenate(numericals, axis=1), ends[:-1], axis=1)
            rows |= zip(names, parts, strict=True)
        for path, chunk in zip(self._paths, self._chunks, strict=True):
            names = chunk["features"]
            values = [self._stored(name, rows[name]) for name in names]
            with write_errors_name(path), path.open("ab") as stream:
                stream.write(np.concatenate(values, axis=1).tobytes())
        self._num_samples += len(values[0])

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray:
        def place(row: int, _: int) -> str:
            return f"feature '{name}': row {self._num_samples + row}"

        return cast_exactly(array, self._spec.dtype(name), place)

    def _dense(self, name: str, array: np.ndarray | Ragged) -> np.ndarray:
        if not isinstance(array, Ragged):
            return array
        lengths, hotness = np.diff(array.row_splits), self._spec.hotness(name)
        for row in np.flatnonzero(lengths != hotness)[:1]:
            raise ValueError(
                f"feature '{name}': row {self._num_samples + row} has {lengths[row]} ids, others "
                f"have {hotness}; split binaries need equally many in every row: keep the data set "
                "as split_tfrecords, or pad the rows to one length when preparing the data"
            )
        return array.values.reshape(-1, hotness)

    def close(self) -> list[dict]:
        """Returns the chunks of the split's spec."""
        return self._chunks


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    return exit_status(
        lambda: print(transcribe(parse(TranscribeOptions, argv, "dataloading.transcribe"))),
        "interrupted; nothing was written under --dst_dataset_path",
    )


if __name__ == "__main__":
    sys.exit(main())
