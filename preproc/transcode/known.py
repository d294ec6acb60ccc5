"""An earlier data set whose encoding more rows get, and growth of its vocabularies."""

import dataclasses
import datetime
from dataclasses import dataclass
from pathlib import Path

from dataloading.keys.growth import Growth
from dataloading.spec import rules
from dataloading.spec.data_set_files import ENCODER_FOLDER, METADATA, SPEC_FILE
from dataloading.spec.feature_spec import USER_CHANNEL, FeatureSpec
from dataloading.spec.locate import find_feature_spec
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Identity
from preproc.encoding.numbers import Number, filled, unfilled
from preproc.encoding.vocabulary import Vocabulary
from preproc.transcode.per_feature import parse_fill
from preproc.transcode.raw.spec import ID_CHANNELS
from preproc.transcode.transcode_flags import TranscodeOptions

NUM_COLUMNS = "columns_without_header"  # in the metadata of a data set of such files
_FLAGS = (
    *("categorify", "hash_buckets", "frequency_threshold", "transform", "missing_indicator"),
    *("no_missing_indicator", "missing_values", "positive", "label_above"),
)


@dataclass(frozen=True)
class KnownData:
    """An earlier data set of transcode.

    Attributes:
        path: the file of its feature spec.
        ancestors: see `keys.growth.Growth`; None if ids do not grow by the values of `train`.
        id_spaces: see `keys.growth.Growth`.
    """

    path: Path
    spec: FeatureSpec
    encoder: Encoder
    ancestors: tuple[str, ...] | None
    id_spaces: tuple[str, ...]

    @classmethod
    def read(cls, flags: TranscodeOptions) -> "KnownData":
        """Reads the data set of --vocabulary, whose encoding no flag may contradict."""
        for name in _FLAGS:
            if getattr(flags, name) is not None and getattr(flags, name) is not False:
                raise ValueError(
                    f"--{name} and --vocabulary: the encoding is that of {flags.vocabulary}; give "
                    "one of the two"
                )
        path = Path(flags.vocabulary)
        if path.suffix not in (".yaml", ".yml") or not path.is_file():
            path = find_feature_spec(path, SPEC_FILE, "--vocabulary")
        spec = FeatureSpec.from_yaml(path)
        if not isinstance(spec.metadata.get(METADATA), dict):
            raise ValueError(
                f"--vocabulary {flags.vocabulary}: expected a data set that preproc.transcode "
                f"wrote, got another one ({path} has no metadata '{METADATA}'): give the --output "
                "of preproc.transcode"
            )
        encoder = _with_fill(Encoder.load(path.parent / ENCODER_FOLDER), flags)
        ancestors = _ancestors(flags, spec, encoder) if flags.grow else None
        return cls(path, spec, encoder, ancestors, Growth.from_spec(spec).id_spaces)

    @property
    def derived(self) -> set[str]:
        """The features that raw data does not have."""
        return set(self.spec.feature_spec) - {encoding.name for encoding in self.encoder.features}

    @property
    def num_columns(self) -> int | None:
        """Number of columns of its files without a header; None: they have one."""
        return self.spec.metadata[METADATA].get(NUM_COLUMNS)

    def check_num_columns(self, num_columns: int, origin: str) -> None:
        """Raises ValueError unless files without a header have the columns of this data set."""
        if self.num_columns not in (None, num_columns):
            raise ValueError(
                f"--no_header: columns are found by their places: expected {self.num_columns} as "
                f"in the files of {self.path.parent}, got {num_columns} in {origin}; to leave some "
                "out, such as the label, add a header with the names c1, c2, ... of the others"
            )


def _with_fill(encoder: Encoder, flags: TranscodeOptions) -> Encoder:
    """Returns an encoder that fills numbers as --fill_missing requests, those without a fill value
    if it names none."""
    if flags.fill_missing is None:
        return encoder
    names = [feature.name for feature in encoder.features if isinstance(feature, Number)]
    fills = parse_fill(flags.fill_missing, names, flags.vocabulary)
    free = unfilled(encoder.features)
    named = {item.rpartition("=")[0] for item in flags.fill_missing.split(",")}
    fills = {name: fill for name, fill in fills.items() if name in named or name in free}
    features = filled(encoder.features, fills, encoder.profile, flags.vocabulary)
    return dataclasses.replace(encoder, features=features)


def _ancestors(flags: TranscodeOptions, spec: FeatureSpec, encoder: Encoder) -> tuple[str, ...]:
    """Returns the data sets whose ids a data set that grows continues, itself the first."""
    where, days = f"--grow: the data set {flags.vocabulary}", flags.evict_after
    own = spec.metadata[METADATA]
    ids = [name for channel in ID_CHANNELS for name in spec.channel_spec.get(channel, ())]
    encodings = [encoder[name] for name in ids]
    if not any(isinstance(encoding, Vocabulary | Identity) for encoding in encodings):
        raise ValueError(
            f"{where} has no ids that can grow: expected a vocabulary or plain ids, got "
            f"{rules.listing(ids)} with --hash_buckets, whose number is fixed; leave --grow out"
        )
    if own.get("encoded_as"):
        raise ValueError(
            f"{where} has the vocabularies of another data set: expected the data set that made "
            "the vocabularies, or made them grow"
        )
    known_date = parse_date(own.get("date"), f"{flags.vocabulary}: metadata 'date'")
    if known_date is not None and (flags.date is None or parse_date(flags.date) < known_date):
        raise ValueError(
            f"--date {flags.date or 'is not passed'}: expected the day of the new rows, "
            f"{known_date} or later, as the data set {flags.vocabulary} keeps the days of its "
            "values"
        )
    if days is not None and (days < 1 or flags.date is None or USER_CHANNEL in spec.channel_spec):
        raise ValueError(
            f"--evict_after {days}: expected 1 or more days, --date, and features of clicks; got "
            f"--date {flags.date}, and the channels {rules.listing(spec.channel_spec)}"
        )
    earlier = () if own.get("evicted") else Growth.from_spec(spec).ancestors
    return spec.fingerprint(), *earlier


def parse_date(text: str | None, name: str = "--date") -> datetime.date | None:
    """Returns the date of --date, or of what has this name in messages; None without it."""
    try:
        return None if text is None else datetime.date.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"{name} is '{text}'; expected a day such as 2026-11-26") from None
