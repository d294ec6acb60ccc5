"""Generated samples as NumPy arrays, and their feature spec."""

import functools
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

from dataloading.pipeline.columns import Column, Role
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.power_law import PowerLaw
from dataloading.synthetic.teacher import Teacher, probabilities

# 26 tables of 10 to 1,000 rows, small and large ones mixed: a minute of training on two cores
# comes near the best AUC.
DEFAULT_CARDINALITIES = tuple(round(10 * 100 ** (11 * f % 26 / 25)) for f in range(26))
DEFAULT_ALPHA = 1.1
DEFAULT_NUM_NUMERICAL = 13
SPLITS = (fs.TRAIN, fs.VALIDATION, fs.TEST)
BLOCK_SAMPLES = 8192  # samples that are drawn together


def synthetic_spec(
    cardinalities=DEFAULT_CARDINALITIES,
    hotness=1,
    alpha=DEFAULT_ALPHA,
    num_numerical: int = DEFAULT_NUM_NUMERICAL,
) -> FeatureSpec:
    """Returns the spec of generated data: `label`, `num_0`, ... and `cat_0`, ...

    Args:
        cardinalities: of each categorical feature; may be empty.
        hotness: ids per sample, one number for all features or one each.
        alpha: exponent of the power law, one number for all features or one each; 0 is uniform.
        num_numerical: float16 numerical features; may be 0.
    """
    hotnesses = _one_each("hotness", hotness, len(cardinalities))
    alphas = _one_each("alpha", alpha, len(cardinalities))
    categorical = {
        f"cat_{f}": {
            "dtype": fs.smallest_id_dtype(cardinality).name,
            "cardinality": cardinality,
            "hotness": hotnesses[f],
            "alpha": alphas[f],
        }
        for f, cardinality in enumerate(cardinalities)
    }
    numerical = {f"num_{j}": {"dtype": "float16"} for j in range(num_numerical)}
    channels = {
        fs.NUMERICAL_CHANNEL: list(numerical),
        fs.CATEGORICAL_CHANNEL: list(categorical),
        fs.LABEL_CHANNEL: ["label"],
    }
    return stored_spec({"label": {"dtype": "bool"}} | numerical | categorical, channels, SPLITS)


def stored_spec(
    features: dict, channels: dict, splits, origin: str = "synthetic data"
) -> FeatureSpec:
    """Returns the spec with these features in files of our usual layout, named `origin`.

    Per split `label.bin`, `numerical.bin` (one more for each change of dtype) and one file per
    categorical feature.
    """
    runs = numerical_runs({name: keys["dtype"] for name, keys in features.items()}, channels)
    groups = {"label": channels[fs.LABEL_CHANNEL]}
    groups |= {f"numerical{f'_{i}' if i else ''}": names for i, names in enumerate(runs)}
    groups |= {f"cat_{f}": [name] for f, name in enumerate(channels[fs.CATEGORICAL_CHANNEL])}
    sources = {
        split: [
            fs.Chunk("split_binary", names, [f"{split}/{file}.bin"])
            for file, names in groups.items()
            if names
        ]
        for split in splits
    }
    return FeatureSpec(features, sources, channels, origin=origin)


def numerical_runs(dtypes: dict, channels: dict) -> list[list[str]]:
    """Returns the numerical features in order, split where the dtype changes."""
    names = channels[fs.NUMERICAL_CHANNEL]
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


class SyntheticSamples:
    """The endless samples of one split; a `SampleReader`. Each name of a split has its own.

    Samples are drawn in blocks of `BLOCK_SAMPLES`, each from its own generator, so that any of them
    can be reached directly; the last `cached_blocks` blocks are kept.
    """

    def __init__(self, spec: FeatureSpec, split: str, seed: int, cached_blocks: int = 4):
        spec.require(
            "the generator",
            channels=(fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, fs.LABEL_CHANNEL),
        )
        for feature in spec.channel(fs.NUMERICAL_CHANNEL):
            if spec.dtype(feature).kind != "f":
                raise ValueError(
                    f"{spec.origin}: feature_spec: feature '{feature}': dtype "
                    f"{spec.dtype(feature)}; generated numerical features are float16, float32 "
                    "or float64"
                )
        dtypes = {feature: spec.dtype(feature) for feature in spec.feature_spec}
        # Features of each column, and the number of values of each.
        self._features = {
            _column(spec, role, names): {name: spec.hotness(name) for name in names}
            for role, runs in (
                (Role.NUMERICAL, numerical_runs(dtypes, spec.channel_spec)),
                (Role.CATEGORICAL, [[name] for name in spec.channel(fs.CATEGORICAL_CHANNEL)]),
                (Role.LABEL, [list(spec.channel(fs.LABEL_CHANNEL))]),
            )
            for names in runs
        }
        self.columns = tuple(self._features)
        self._laws = {
            column: PowerLaw(
                column.cardinality, spec.feature_spec[column.feature].get("alpha", DEFAULT_ALPHA)
            )
            for column in self.columns
            if column.role is Role.CATEGORICAL
        }
        num_numerical = sum(c.width for c in self.columns if c.role is Role.NUMERICAL)
        self._teacher = Teacher(seed, list(self._laws.values()), num_numerical)
        stream = int.from_bytes(hashlib.sha256(split.encode()).digest()[:16], "little")
        self._stream = [seed, 2, SPLITS.index(split) if split in SPLITS else stream]
        self.block = functools.lru_cache(cached_blocks)(self._draw)

    def _draw(self, index: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns the samples of a block: an array `[BLOCK_SAMPLES, width]` per column, as stored,
        and the teacher's logits `[BLOCK_SAMPLES]`."""
        generator = np.random.default_rng([*self._stream, index])
        numerical = [
            generator.standard_normal((BLOCK_SAMPLES, column.width), np.float32).astype(
                column.dtype
            )
            for column in self.columns
            if column.role is Role.NUMERICAL
        ]
        ids = [
            law.draw(generator, (BLOCK_SAMPLES, column.width)).astype(column.dtype)
            for column, law in self._laws.items()
        ]
        # The teacher sees numerical features as they are stored, rounded to their dtype.
        joined = np.concatenate([np.zeros((BLOCK_SAMPLES, 0), np.float32), *numerical], axis=1)
        logits = self._teacher.logits(joined, ids)
        labels = generator.random(BLOCK_SAMPLES) < probabilities(logits)
        return [*numerical, *ids, labels[:, None].astype(self.columns[-1].dtype)], logits

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """Generates all samples from the first to the last one."""
        if not isinstance(samples, range):
            first, last = int(samples.min()), int(samples.max())
            arrays = self.read(range(first, last + 1), columns)
            return [array[samples - first] for array in arrays]
        pieces = []
        first = samples.start // BLOCK_SAMPLES * BLOCK_SAMPLES
        for start in range(first, max(samples.start + 1, samples.stop), BLOCK_SAMPLES):
            arrays = dict(zip(self.columns, self.block(start // BLOCK_SAMPLES)[0], strict=True))
            part = slice(max(samples.start - start, 0), samples.stop - start)
            pieces.append([arrays[column][part] for column in columns])
        return [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]

    def features(self, index: int) -> dict[str, np.ndarray]:
        """Returns a block by feature, arrays `[BLOCK_SAMPLES, hotness]` as stored."""
        arrays = {}
        for sizes, array in zip(self._features.values(), self.block(index)[0], strict=True):
            ends = np.cumsum(list(sizes.values()))
            arrays |= zip(sizes, np.split(array, ends[:-1], axis=1), strict=True)
        return arrays


def _column(spec: FeatureSpec, role: Role, names: list[str]) -> Column:
    cardinality = spec.cardinality(names[0]) if role is Role.CATEGORICAL else None
    width = sum(spec.hotness(name) for name in names)
    return Column(role, names[0], spec.dtype(names[0]), width, cardinality)
