"""The teacher of generated clicks, and the best AUC that any model can reach on them.

    logit = bias + sum_f a_f(ids_f) + sum_j g_j(x_j) + sum_(f, g) <v_f(ids_f), v_g(ids_g)>
    label ~ Bernoulli(sigmoid(logit))

a_f: an effect of each id; g_j: linear and quadratic in numerical j; v_f: a vector of each id, whose
dot products with another feature's a linear model cannot fit and the interaction of DLRM can. No
score ranks better than the label's probability, so the teacher's AUC is the best reachable.
"""

import numpy as np

from dataloading.synthetic.power_law import PowerLaw

# Shares of the logit's variance, and the logit of an average row.
_ID_VARIANCE = 1.2
_NUMERICAL_VARIANCE = 0.6
_PAIR_VARIANCE = 0.5
_BIAS = -1.4
_NUM_PAIRS = 3
_VECTOR_SIZE = 2
# Later ids have no effect of their own: they are too rare to be learned.
_ACTIVE_IDS = 4096
# The probability at which an id's effect is 1 / sqrt(2) of a frequent id's. An effect that takes
# longer to learn than the data lasts would only put the best AUC out of reach.
_RARE = 1e-2
# Logits lie on a grid, so that counts per grid point give the exact AUC of any number of rows.
_GRID_STEPS = 4096
_MAX_LOGIT = 16


class Teacher:
    """Log-odds of a click, a function of seed, distributions and number of numerical features.

    Args:
        laws: the distribution of each categorical feature's ids.
        num_numerical: numerical features, expected to be standard normal.
    """

    def __init__(self, seed: int, laws: list[PowerLaw], num_numerical: int):
        generator = np.random.default_rng([seed, 1])
        # Falling shares: a few features matter most, as in real clicks.
        self._effects = [
            _id_vectors(generator, law, 1) * share
            for law, share in zip(laws, _shares(len(laws), _ID_VARIANCE), strict=True)
        ]
        signs = generator.choice([-1.0, 1.0], num_numerical)
        self._slopes = (_shares(num_numerical, _NUMERICAL_VARIANCE) * signs).astype(np.float32)
        num_pairs = min(_NUM_PAIRS, len(laws) // 2)
        size = np.float32(np.sqrt(_PAIR_VARIANCE / max(num_pairs, 1) / _VECTOR_SIZE))
        self._vectors = [
            _id_vectors(generator, law, _VECTOR_SIZE) * (size if f % 2 == 0 else 1)
            for f, law in enumerate(laws[: 2 * num_pairs])
        ]

    def logits(self, numerical: np.ndarray, categorical: list[np.ndarray]) -> np.ndarray:
        """Returns log-odds, float32 [samples], of numerical features [samples, n] and ids [samples,
        hotness]."""
        numerical = numerical.astype(np.float32)
        logits = np.full(len(numerical), _BIAS, np.float32)
        # x and (x^2 - 1) / sqrt(2) are uncorrelated and of variance 1; 0.8^2 + 0.6^2 = 1.
        curves = np.float32(0.8) * numerical
        curves += np.float32(0.6 / np.sqrt(2)) * (np.square(numerical) - 1)
        logits += curves @ self._slopes
        for effects, ids in zip(self._effects, categorical, strict=True):
            logits += _pooled(effects, ids)[:, 0]
        for f in range(0, len(self._vectors), 2):
            left = _pooled(self._vectors[f], categorical[f])
            right = _pooled(self._vectors[f + 1], categorical[f + 1])
            logits += (left * right).sum(axis=1)
        return np.clip(np.rint(logits * _GRID_STEPS) / _GRID_STEPS, -_MAX_LOGIT, _MAX_LOGIT)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """sigmoid(logits)."""
    return 1 / (1 + np.exp(-logits))


def _shares(count: int, variance: float) -> np.ndarray:
    """Returns factors in proportion to 1, 1/sqrt(2), ... whose squares add up to variance."""
    if not count:
        return np.zeros(0, np.float32)
    weights = 1 / np.arange(1, count + 1)
    return np.sqrt(weights * variance / weights.sum()).astype(np.float32)


def _id_vectors(generator: np.random.Generator, law: PowerLaw, size: int) -> np.ndarray:
    """Returns a vector per id, of mean 0 and variance 1 over drawn ids, and one for the rest."""
    p = law.head_probabilities[:_ACTIVE_IDS, None]
    damping = np.sqrt(p / (p + _RARE))
    normal = generator.standard_normal((len(p), size))
    vectors = damping * (normal - (p * damping * normal).sum(axis=0) / (p * damping).sum())
    deviation = np.sqrt((p * vectors**2).sum(axis=0))
    vectors /= np.where(deviation > 1e-6, deviation, np.inf)  # a single id has no effect
    return np.concatenate([vectors, np.zeros((1, size))]).astype(np.float32)


def _pooled(vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns the sum of the vectors of each sample's ids, divided by sqrt(hotness)."""
    hotness = ids.shape[1]
    pooled = vectors.take(np.minimum(ids[:, 0], len(vectors) - 1), axis=0)
    for column in range(1, hotness):
        pooled += vectors.take(np.minimum(ids[:, column], len(vectors) - 1), axis=0)
    return pooled / np.float32(np.sqrt(hotness)) if hotness > 1 else pooled


class LogitCounts:
    """Counts of clicks and samples per logit of the teacher, in bounded memory."""

    def __init__(self):
        points = 2 * _MAX_LOGIT * _GRID_STEPS + 1
        self._clicks = np.zeros(points, np.int64)
        self._samples = np.zeros(points, np.int64)

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Counts samples: their logits of `Teacher.logits` and their labels, 0 or 1."""
        point = np.rint((logits.ravel() + _MAX_LOGIT) * _GRID_STEPS).astype(np.int64)
        self._samples += np.bincount(point, minlength=len(self._samples))
        self._clicks += np.bincount(point[labels.ravel() > 0], minlength=len(self._samples))

    @property
    def num_samples(self) -> int:
        return int(self._samples.sum())

    @property
    def click_rate(self) -> float:
        """Clicks per row; NaN without rows."""
        return float(self._clicks.sum() / self.num_samples) if self.num_samples else float("nan")

    @property
    def best_auc(self) -> float:
        """The exact AUC of the teacher on the counted rows; NaN where all labels are equal."""
        return _auc(self._clicks, self._samples - self._clicks)

    @property
    def expected_auc(self) -> float:
        """The AUC of the teacher on average over all labels that these rows could have drawn."""
        p = probabilities(np.arange(len(self._samples)) / _GRID_STEPS - _MAX_LOGIT)
        return _auc(self._samples * p, self._samples * (1 - p))


def _auc(positives: np.ndarray, negatives: np.ndarray) -> float:
    """Returns the area under the ROC curve from counts per score, ascending; ties count half."""
    pairs = float(positives.sum()) * float(negatives.sum())
    if pairs == 0:
        return float("nan")
    below = np.cumsum(negatives, dtype=np.float64) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs)
