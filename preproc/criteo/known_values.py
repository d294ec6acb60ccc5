"""A prepared data set's vocabulary, for new rows: `--encode_only --vocabulary DATA_SET`."""

from dataclasses import dataclass
from pathlib import Path

from dataloading.keys.vocabulary import text_file
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import CATEGORICAL_CHANNEL, FeatureSpec
from preproc.criteo.engines.interface import CategoricalColumn, CriteoEngine
from preproc.criteo.output import data_set

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
        if not (folder / SPEC_FILE).is_file():
            raise ValueError(
                f"--vocabulary {folder} is not a prepared data set: it has no {SPEC_FILE}; use "
                "the --output folder of an earlier run"
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
                    f"--vocabulary {folder} lacks {text_file(column)}; prepare the data set again"
                )
        return known

    @property
    def with_bins(self) -> bool:
        return data_set.BINS[0] in self.spec.channel_spec[CATEGORICAL_CHANNEL]

    def file(self, column: str) -> Path:
        return self.folder / text_file(column)

    def read(self, engine: CriteoEngine, column: CategoricalColumn) -> int:
        """Reads a vocabulary; returns its size, which must be that of the feature spec."""
        source, expected = self.file(column.name), self.spec.cardinality(column.name) - 1
        num_values = engine.read_vocabulary(source, column.vocabulary)
        if num_values != expected:
            raise ValueError(
                f"{source} has {num_values:,} values, but {self.folder / SPEC_FILE} "
                f"specifies {expected:,}; the file was changed, prepare the data set again"
            )
        return num_values

    def metadata(self) -> dict:
        return {key: self.spec.metadata[key] for key in _METADATA if key in self.spec.metadata}
