"""A prepared data set's vocabulary, for new rows: `--encode_only --vocabulary DATA_SET`."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.data_set_files import ENCODER_FOLDER
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, FeatureSpec
from dataloading.spec.locate import find_feature_spec
from preproc.criteo.column_encodings import BINS, CATEGORICALS
from preproc.encoding.encoder_folder import vocabulary_file

# Metadata of the vocabulary, which the new data set repeats.
_METADATA = ("frequency_threshold", "column_thresholds", "vocabulary_days")


@dataclass(frozen=True)
class KnownValues:
    """Ids of values; the same for the model and for new rows."""

    folder: Path
    spec: FeatureSpec

    @classmethod
    def from_data_set(cls, folder: Path) -> "KnownValues":
        """Reads a prepared data set; raises ValueError unless it is one with Criteo's columns."""
        spec = FeatureSpec.from_yaml(find_feature_spec(folder, flag="--vocabulary"))
        features = spec.channel_spec.get(CATEGORICAL_CHANNEL, ())
        if features not in (CATEGORICALS, CATEGORICALS + BINS):
            raise ValueError(
                f"--vocabulary {folder}: its categorical features are not those of a prepared "
                f"Criteo log, cat_0 to cat_{len(CATEGORICALS) - 1}"
            )
        known = cls(folder, spec)
        for column, path in zip(CATEGORICALS, known.vocabularies, strict=True):
            expected = spec.cardinality(column) - 1
            try:
                num_values = pq.read_metadata(path).num_rows
            except (OSError, pa.ArrowException) as error:
                num_values = error
            if num_values != expected:
                raise known.damaged(f"{expected:,} values of {column}", str(num_values))
        return known

    @property
    def with_bins(self) -> bool:
        return BINS[0] in self.spec.channel_spec[CATEGORICAL_CHANNEL]

    @property
    def digest(self) -> str:
        """Digest of the encoder; empty for a data set of an earlier version."""
        return self.spec.metadata.get(ENCODER_FOLDER, "")

    @property
    def vocabularies(self) -> list[Path]:
        """Files of the vocabularies."""
        return [vocabulary_file(self.folder / ENCODER_FOLDER, column) for column in CATEGORICALS]

    def threshold(self, column: str) -> int:
        thresholds = self.spec.metadata.get("column_thresholds", {})
        return thresholds.get(column, self.spec.metadata["frequency_threshold"])

    def copy(self, folder: Path) -> None:
        """Copies the vocabularies into another data set."""
        for path in self.vocabularies:
            shutil.copyfile(path, folder / path.relative_to(self.folder))

    def damaged(self, expected: str, got: str) -> ValueError:
        """Returns the error of a data set that is not as it was written."""
        return ValueError(
            f"--vocabulary {self.folder}: expected {expected}, got {got:.200}; the data set was "
            "changed or is of an earlier version: prepare it again"
        )

    def metadata(self) -> dict:
        return {key: self.spec.metadata[key] for key in _METADATA if key in self.spec.metadata}
