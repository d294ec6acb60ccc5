"""Generated rows as NumPy arrays, and their feature spec."""

import hashlib
import itertools

import numpy as np

from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TEST,
    TRAIN,
    VALIDATION,
    FeatureSpec,
    smallest_id_dtype,
)
from dataloading.synthetic.power_law import PowerLaw
from dataloading.synthetic.teacher import Teacher, probabilities

# 26 tables of 10 to 1,000 rows, small and large ones mixed: a minute of training on two cores
# comes near the best AUC.
DEFAULT_CARDINALITIES = tuple(round(10 * 100 ** (11 * f % 26 / 25)) for f in range(26))
DEFAULT_ALPHA = 1.1
DEFAULT_NUM_NUMERICAL = 13
SPLITS = (TRAIN, VALIDATION, TEST)
# Rows are drawn in blocks, each from its own generator, so that any row can be reached directly.
BLOCK_ROWS = 8192


def synthetic_spec(
    cardinalities=DEFAULT_CARDINALITIES,
    hotness=1,
    alpha=DEFAULT_ALPHA,
    num_numerical: int = DEFAULT_NUM_NUMERICAL,
) -> FeatureSpec:
    """The spec of generated data: `label`, `num_0`, ... and `cat_0`, ...

    Args:
        cardinalities: of each categorical feature; may be empty.
        hotness: ids per row, one number for all features or one each.
        alpha: exponent of the power law, one number for all features or one each; 0 is uniform.
        num_numerical: float16 numerical features; may be 0.
    """
    if num_numerical < 0:
        raise ValueError(f"num_numerical is {num_numerical}; allowed: 0 or more")
    categorical = {}
    for f, (cardinality, ids, exponent) in enumerate(
        zip(
            cardinalities,
            _one_each("hotness", hotness, len(cardinalities)),
            _one_each("alpha", alpha, len(cardinalities)),
            strict=True,
        )
    ):
        categorical[f"cat_{f}"] = {
            "dtype": smallest_id_dtype(cardinality).name,
            "cardinality": cardinality,
            "hotness": ids,
            "alpha": exponent,
        }
    numerical = {f"num_{j}": {"dtype": "float16"} for j in range(num_numerical)}
    channels = {
        NUMERICAL_CHANNEL: list(numerical),
        CATEGORICAL_CHANNEL: list(categorical),
        LABEL_CHANNEL: ["label"],
    }
    return stored_spec({"label": {"dtype": "bool"}} | numerical | categorical, channels, SPLITS)


def stored_spec(
    features: dict, channels: dict, splits, origin: str = "synthetic data"
) -> FeatureSpec:
    """The spec with these features in files of our usual layout; messages call it `origin`.

    Per split `label.bin`, `numerical.bin` (one more for each change of dtype) and one file per
    categorical feature. A channel without features has no file.
    """
    runs = numerical_runs({name: keys["dtype"] for name, keys in features.items()}, channels)
    groups = {"label": channels[LABEL_CHANNEL]}
    groups |= {f"numerical{f'_{i}' if i else ''}": names for i, names in enumerate(runs)}
    groups |= {f"cat_{f}": [name] for f, name in enumerate(channels[CATEGORICAL_CHANNEL])}
    sources = {
        split: [
            {"type": "split_binary", "features": names, "files": [f"{split}/{file}.bin"]}
            for file, names in groups.items()
            if names
        ]
        for split in splits
    }
    return FeatureSpec(features, sources, channels, origin=origin)


def numerical_runs(dtypes: dict, channels: dict) -> list[list[str]]:
    """The numerical features in order, split where the dtype changes."""
    names = channels[NUMERICAL_CHANNEL]
    return [list(run) for _, run in itertools.groupby(names, key=lambda name: str(dtypes[name]))]


def _one_each(name: str, value, count: int) -> list:
    values = [value] if isinstance(value, int | float) else list(value)
    if len(values) == 1:
        values *= count
    if len(values) != count:
        raise ValueError(
            f"{name} has {len(values)} values and there are {count} cardinalities; give one for "
            "all features or one each"
        )
    return values


def _stream_number(split: str) -> int:
    """Returns the random stream of a split, the same on every machine."""
    if split in SPLITS:
        return SPLITS.index(split)
    return int.from_bytes(hashlib.sha256(split.encode()).digest()[:16], "little")


class SyntheticRows:
    """The endless rows of one split, in blocks of `BLOCK_ROWS`; each name of a split has its own.

    Attributes:
        numerical: (features, dtype, values per row) of each array of numerical features.
        categorical: (feature, dtype, hotness) of each array of ids.
        label: (feature, dtype).

    Raises:
        ValueError: a negative seed, or a spec that nothing can be drawn for.
    """

    def __init__(self, spec: FeatureSpec, split: str, seed: int):
        if seed < 0:
            raise ValueError(f"seed is {seed}; allowed: 0 or more")
        spec.require(
            "the generator", channels=(NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, LABEL_CHANNEL)
        )
        for feature in spec.channel(NUMERICAL_CHANNEL):
            if spec.dtype(feature).kind != "f":
                raise ValueError(
                    f"{spec.origin}: feature_spec: feature '{feature}': dtype "
                    f"{spec.dtype(feature)}; generated numerical features are float16, float32 "
                    "or float64"
                )
        dtypes = {feature: spec.dtype(feature) for feature in spec.feature_spec}
        self._hotness = {feature: spec.hotness(feature) for feature in spec.feature_spec}
        self.numerical = [
            (run, dtypes[run[0]], sum(self._hotness[feature] for feature in run))
            for run in numerical_runs(dtypes, spec.channel_spec)
        ]
        self.categorical = [
            (feature, dtypes[feature], self._hotness[feature])
            for feature in spec.channel(CATEGORICAL_CHANNEL)
        ]
        (label,) = spec.channel(LABEL_CHANNEL)
        self.label = (label, dtypes[label])
        self._laws = [
            PowerLaw(
                spec.cardinality(feature),
                spec.feature_spec[feature].get("alpha", DEFAULT_ALPHA),
            )
            for feature, _, _ in self.categorical
        ]
        self._teacher = Teacher(seed, self._laws, sum(width for _, _, width in self.numerical))
        self._stream = [seed, 2, _stream_number(split)]

    def block(
        self, index: int
    ) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
        """Block `index`: (numerical features, ids, labels, logits).

        One array `[BLOCK_ROWS, values per row]` per entry of `numerical` and of `categorical`, as
        stored; labels `[BLOCK_ROWS, 1]`; the teacher's logits `[BLOCK_ROWS]`.
        """
        generator = np.random.default_rng([*self._stream, index])
        numerical = [
            generator.standard_normal((BLOCK_ROWS, width), np.float32).astype(dtype)
            for _, dtype, width in self.numerical
        ]
        ids = [
            law.draw(generator, (BLOCK_ROWS, hotness)).astype(dtype)
            for law, (_, dtype, hotness) in zip(self._laws, self.categorical, strict=True)
        ]
        # The teacher sees numerical features as they are stored, rounded to their dtype.
        joined = np.concatenate([np.zeros((BLOCK_ROWS, 0), np.float32), *numerical], axis=1)
        logits = self._teacher.logits(joined, ids)
        labels = generator.random(BLOCK_ROWS) < probabilities(logits)
        return numerical, ids, labels[:, None].astype(self.label[1]), logits

    def columns(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Block `index` by feature: arrays `[BLOCK_ROWS, hotness]` as stored, and the logits."""
        numerical, ids, labels, logits = self.block(index)
        columns = {self.label[0]: labels}
        for (names, _, _), array in zip(self.numerical, numerical, strict=True):
            ends = np.cumsum([self._hotness[name] for name in names])
            columns |= zip(names, np.split(array, ends[:-1], axis=1), strict=True)
        names = [feature for feature, _, _ in self.categorical]
        return columns | dict(zip(names, ids, strict=True)), logits
