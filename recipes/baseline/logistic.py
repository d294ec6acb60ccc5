"""Logistic regression of scikit-learn on one-hot ids and standardized numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipes.baseline.fitted import SimpleModel, scores_of
from recipes.baseline.sample_arrays import ClickRows

# Inverse weights of the squared norm that are tried, from the strongest regularization on.
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_MAX_STEPS = 100


def logistic_regression(train: ClickRows, choosing: ClickRows) -> SimpleModel:
    """Returns the model with the regularization of the least log loss of `choosing`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    encode = _encoder(train)
    matrix, choosing_matrix = encode(train), encode(choosing)
    model = LogisticRegression(max_iter=_MAX_STEPS, warm_start=True)
    trials = []
    for strength in STRENGTHS:
        model.set_params(C=strength)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the better of the steps counts
            model.fit(matrix, train.labels)
        weights, bias = model.coef_[0].copy(), float(model.intercept_[0])
        logits = choosing_matrix @ weights + bias
        trials.append((scores_of(logits, choosing.labels).log_loss, strength, weights, bias))
    _, strength, weights, bias = min(trials, key=lambda trial: trial[0])

    def logits_of(rows: ClickRows) -> NDArray[np.float64]:
        return np.asarray(encode(rows) @ weights + bias)

    return SimpleModel("logistic regression", f"C {strength:g}", logits_of)


def _encoder(train: ClickRows) -> Callable[[ClickRows], Any]:
    """Returns the function from rows to a sparse matrix [rows, values of all features]."""
    from scipy import sparse

    mean = train.numbers.mean(axis=0, dtype=np.float64)
    deviation = train.numbers.std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1

    def encode(rows: ClickRows) -> Any:
        number = len(rows.labels)
        parts = [sparse.csr_matrix((rows.numbers - mean) / deviation)]
        for feature, ids in rows.ids.items():
            content = (np.ones(number), ids.astype(np.int64), np.arange(number + 1))
            parts.append(sparse.csr_matrix(content, (number, rows.cardinalities[feature])))
        for feature, bag in rows.bags.items():
            content = (np.ones(len(bag.values)), bag.values.astype(np.int64), bag.row_splits)
            matrix = sparse.csr_matrix(content, (number, rows.cardinalities[feature]))
            matrix.sum_duplicates()
            parts.append(matrix)
        return sparse.hstack(parts, format="csr")

    return encode
