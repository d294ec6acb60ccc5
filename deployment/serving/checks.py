"""Checks of a request: names, dtypes and shapes of tensors, ranges of ids, finite numerical values,
padding of histories.

Lookups clamp ids and NaN propagates silently, so every value is checked before them.
"""

from collections.abc import Collection, Mapping

import numpy as np

from deployment.serving.interface import (
    UNKNOWN_IS_ZERO,
    Interface,
    ServedTensor,
    feature_at,
    id_limits,
    received,
)


class BadRequest(ValueError):
    """Request that breaks a rule.

    Errors of a whole tensor have no `feature` and no `row`, counted from 0; errors of a score no
    `feature`.
    """

    def __init__(self, message: str, feature: str | None = None, row=None, value="", rule=""):
        super().__init__(message)
        self.feature, self.row, self.value, self.rule = feature, row, value, rule


class RequestChecker:
    """Checks requests of one model; prepared so that a request of one row takes microseconds."""

    def __init__(self, interface: Interface):
        self._max_batch_size = interface.max_batch_size
        self._tensors = [_TensorChecker(tensor, interface) for tensor in received(interface)]
        self._names = {checker.tensor.name for checker in self._tensors}

    def check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the request's tensors [batch, *dims] with 0 for unknown ids if the interface
        allows them.

        Raises:
            BadRequest: a rule is broken; names the first bad row of a tensor.
        """
        if arrays.keys() != self._names:
            raise BadRequest(
                f"the request has the tensors {listing(sorted(arrays))}; needed: "
                f"{listing(sorted(self._names))}"
            )
        batch_size = None
        checked = {}
        for checker in self._tensors:
            array = arrays[checker.tensor.name]
            checker.check_form(array)
            batch_size = len(array) if batch_size is None else batch_size
            if not 1 <= batch_size <= self._max_batch_size:
                raise BadRequest(
                    f"the request has {batch_size} rows; expected 1 to {self._max_batch_size} "
                    "(the model's max_batch_size)"
                )
            if len(array) != batch_size:
                raise BadRequest(
                    f"tensor '{checker.tensor.name}' has {len(array)} rows and "
                    f"'{self._tensors[0].tensor.name}' has {batch_size}; all need the same number"
                )
            checked[checker.tensor.name] = checker.check_values(array)
        return checked


def check_scores(scores: np.ndarray, first_row: int = 0) -> None:
    """Raises BadRequest if a score [batch, 1] is NaN, which a valid request can cause.

    `first_row` is the number of the first score's row in the request.
    """
    bad = np.isnan(scores)
    if bad.any():
        row = first_row + int(np.argmax(bad))
        rule = (
            "its logit is not finite, because a numerical value of the row or weights of the model "
            "are too large for its precision"
        )
        message = f"the score of row {row} (counted from 0) is NaN: {rule}"
        raise BadRequest(message, row=row, value="a score of NaN", rule=rule)


class _TensorChecker:
    """Checks one tensor: its form, then all of its values at once."""

    def __init__(self, tensor: ServedTensor, interface: Interface):
        self.tensor = tensor
        self._dtype, self._dims = np.dtype(tensor.dtype), tensor.dims
        self._unknown_is_zero = interface.unknown_ids == UNKNOWN_IS_ZERO
        # In a history id 0 is padding, so the flag is not available.
        self._unknown_advice = ""
        if not interface.histories:
            self._unknown_advice = "; --unknown_ids zero of deployment.deploy maps others to id 0"
        self._features = [f for f in interface.features if f.input == tensor.name]
        self._columns = int(np.prod(tensor.dims))
        self._is_history = tensor.name in interface.histories
        self._is_numerical = any(f.cardinality is None for f in self._features)
        if self._is_numerical or not self._features:
            return
        self._first, self._end = id_limits(self._features, tensor)

    def check_form(self, array: np.ndarray) -> None:
        """Raises BadRequest for another dtype or shape."""
        if array.dtype != self._dtype or array.shape[1:] != self._dims or not array.ndim:
            raise BadRequest(
                f"tensor '{self.tensor.name}' is {array.dtype} {list(array.shape)}; needed: "
                f"{self._dtype} [batch, {', '.join(map(str, self._dims))}]"
            )

    def check_values(self, array: np.ndarray) -> np.ndarray:
        """Returns the values, with 0 for unknown ids if the interface allows them."""
        if not self._features:
            return array
        if self._is_numerical:
            if not np.isfinite(array).all():
                self._refuse(array, ~np.isfinite(array), "numerical features are finite")
            return array
        checked = self._checked_ids(array)
        if self._is_history:
            self._check_padding(checked)
        return checked

    def _checked_ids(self, array: np.ndarray) -> np.ndarray:
        ids = array.reshape(len(array), self._columns)
        if self._unknown_is_zero:
            # Negative ids are never unknown ids of the training: they stay, and are refused.
            ids = np.where(ids < self._end, ids, 0)
            array = ids.reshape(array.shape)
        in_range = (ids >= self._first) & (ids < self._end)
        if not in_range.all():
            self._refuse(ids, ~in_range)
        return array

    def _refuse(self, array: np.ndarray, bad: np.ndarray, rule: str = "") -> None:
        """Raises BadRequest for the first bad value, where `bad` [batch, ...] is true."""
        first = int(np.argmax(bad))
        row, column = divmod(first, self._columns)
        feature = feature_at(self._features, self.tensor.name, column)
        value = array.reshape(-1)[first]
        if not rule:
            rule = f"ids lie in [0, {feature.cardinality})"
            if feature.padded:
                rule += ", -1 is for no id"
            if value >= 0:
                rule += self._unknown_advice
        raise self._bad_request(feature.name, row, str(value), rule)

    def _check_padding(self, ids: np.ndarray) -> None:
        misplaced = find_misplaced_padding(ids)
        if misplaced is None:
            return
        row, feature, step, is_after_id = misplaced
        name, first_name = (
            feature_at(self._features, self.tensor.name, number * ids.shape[2]).name
            for number in (feature, 0)
        )
        value, rule = "0 after an id", "zeros are padding, at the start of a history only"
        if not is_after_id:
            value = f"{ids[row, feature, step]}, and '{first_name}' has {ids[row, 0, step]}"
            rule = "zeros are padding, at the same steps of all histories of a row"
        raise self._bad_request(name, row, value, rule, f", step {step}")

    def _bad_request(
        self, feature: str, row: int, value: str, rule: str, step: str = ""
    ) -> BadRequest:
        message = (
            f"tensor '{self.tensor.name}': feature '{feature}', row {row}{step} (counted from 0): "
            f"{value}; {rule}"
        )
        return BadRequest(message, feature, row, value, rule)


def find_misplaced_padding(ids: np.ndarray) -> tuple[int, int, int, bool] | None:
    """Returns the first misplaced value of the first bad row; None if all padding is valid.

    Models take the first history's zeros as those of all, and the last step as the latest event.

    Args:
        ids: integers [rows, features, steps].

    Returns:
        Row, feature, step, and whether it is a 0 after an id; else exactly one of the row's first
        history and this one has a 0 at this step.
    """
    padding = ids == 0
    first = padding[:, 0]
    if (first[:, 1:] <= first[:, :-1]).all() and (padding == first[:, np.newaxis]).all():
        return None
    after_id = np.zeros_like(padding)
    after_id[:, :, 1:] = padding[:, :, 1:] & ~padding[:, :, :-1]
    differs = padding != first[:, np.newaxis]
    row = int(np.argmax((after_id | differs).any(axis=(1, 2))))
    is_after_id = bool(after_id[row].any())
    bad = after_id[row] if is_after_id else differs[row]
    feature, step = divmod(int(np.argmax(bad)), ids.shape[2])
    return row, feature, step, is_after_id


def listing(names: Collection[str]) -> str:
    """Returns names for a message."""
    return ", ".join(map(str, names)) or "(none)"
