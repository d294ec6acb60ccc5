"""A prepared data set's vocabulary, for new rows: `--encode_only --vocabulary DATA_SET`."""

from dataclasses import dataclass
from pathlib import Path

from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, FeatureSpec
from preproc.criteo.output import data_set
from preproc.criteo.output.staging import SPEC_FILE

# What the new data set says of the vocabulary, as the old one does.
_METADATA = ("frequency_threshold", "column_thresholds", "vocabulary_days")


@dataclass(frozen=True)
class KnownValues:
    """Which values have which ids; the same for the model and for new rows."""

    folder: Path
    spec: FeatureSpec

    @classmethod
    def of(cls, folder: Path) -> "KnownValues":
        """Reads the feature spec of a prepared data set.

        Raises:
            ValueError: the folder is none, or not one of Criteo's columns, or lacks a vocabulary.
        """
        if not (folder / SPEC_FILE).is_file():
            raise ValueError(
                f"--vocabulary {folder} is no prepared data set: it has no {SPEC_FILE}; give the "
                "folder that an earlier run made as its --output"
            )
        spec = FeatureSpec.from_yaml(folder / SPEC_FILE)
        features = spec.channel_spec.get(CATEGORICAL_CHANNEL, ())
        if features not in (data_set.CATEGORICALS, data_set.CATEGORICALS + data_set.BINS):
            raise ValueError(
                f"--vocabulary {folder}: its categorical features are not those of a prepared "
                f"Criteo log, cat_0 to cat_{len(data_set.CATEGORICALS) - 1}"
            )
        known = cls(folder, spec)
        for column in data_set.CATEGORICALS:
            if not known.file(column).is_file():
                raise ValueError(
                    f"--vocabulary {folder} lacks {data_set.vocabulary_file(column)}; prepare the "
                    "data set anew"
                )
        return known

    @property
    def with_bins(self) -> bool:
        """Whether the data set has its numericals as bins, too."""
        return data_set.BINS[0] in self.spec.channel_spec[CATEGORICAL_CHANNEL]

    def file(self, column: str) -> Path:
        """The text file with the column's values in the order of their ids."""
        return self.folder / data_set.vocabulary_file(column)

    def fingerprint(self, column: str) -> list:
        """Changes when the column's file does: its path, size in bytes, time of change in ns."""
        status = self.file(column).stat()
        return [str(self.file(column).resolve()), status.st_size, status.st_mtime_ns]

    def check(self, column: str, num_values: int) -> None:
        """Checks the number of values read against the feature spec.

        Raises:
            ValueError: they differ.
        """
        expected = self.spec.cardinality(column) - 1
        if num_values != expected:
            raise ValueError(
                f"{self.file(column)} has {num_values:,} values, but {self.folder / SPEC_FILE} "
                f"says {expected:,}; the file was changed or cut off, prepare the data set anew"
            )

    def metadata(self) -> dict:
        """What is known of how these ids were given."""
        return {key: self.spec.metadata[key] for key in _METADATA if key in self.spec.metadata}
