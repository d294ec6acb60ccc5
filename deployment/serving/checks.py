"""What a request must keep: its tensors' names, dtypes and shapes; ids in range, finite numericals,
histories with zeros in front only.

Lookups behind it clamp and numbers behind it propagate without a word, so nothing passes unseen.
"""

from collections.abc import Mapping

import numpy as np

from deployment.serving.histories import find_misplaced_padding
from deployment.serving.interface import (
    UNKNOWN_IS_ZERO,
    Interface,
    ServedTensor,
    feature_at,
    id_limits,
    received,
)


def unknown_ids_way_out(interface: Interface) -> str:
    """What to do about ids from the cardinality on, behind the rule; nothing where there is no way:
    in a history id 0 is padding."""
    if interface.histories:
        return ""
    return "; --unknown_ids zero of deployment.deploy takes others for id 0"


class BadRequest(ValueError):
    """A request that breaks a rule; the message is for whoever sent it.

    Attributes:
      feature: which feature; None: it is a tensor's name, dtype or shape.
      row: of the request, counted from 0.
      found, rule: the bad value, and what is allowed.
    """

    def __init__(self, message: str, feature: str | None = None, row=None, found="", rule=""):
        super().__init__(message)
        self.feature, self.row, self.found, self.rule = feature, row, found, rule


class RequestChecker:
    """The checks of one model, prepared so that a request of one row takes microseconds.

    Args:
      interface: of the model; its role says which tensors come.
    """

    def __init__(self, interface: Interface):
        self._max_batch_size = interface.max_batch_size
        self._tensors = [_TensorChecker(tensor, interface) for tensor in received(interface)]
        self._names = {check.tensor.name for check in self._tensors}

    def check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The request's tensors; where unknown ids are zero, with 0 in place of those.

        Args:
          arrays: tensor -> [batch, *dims].

        Raises:
          BadRequest: a rule is broken; the first row of a tensor that breaks it is named.
        """
        if arrays.keys() != self._names:
            raise BadRequest(
                f"the request has the tensors {_listing(arrays)}; needed: {_listing(self._names)}"
            )
        batch_size = None
        checked = {}
        for check in self._tensors:
            array = arrays[check.tensor.name]
            check.check_form(array)
            if batch_size is None:
                batch_size = self._checked_batch_size(len(array))
            elif len(array) != batch_size:
                raise BadRequest(
                    f"tensor '{check.tensor.name}' has {len(array)} rows and "
                    f"'{self._tensors[0].tensor.name}' has {batch_size}; all need equally many"
                )
            checked[check.tensor.name] = check.check_values(array)
        return checked

    def _checked_batch_size(self, batch_size: int) -> int:
        if not 1 <= batch_size <= self._max_batch_size:
            raise BadRequest(
                f"the request has {batch_size} rows; allowed: 1 to {self._max_batch_size} "
                "(the model's max_batch_size)"
            )
        return batch_size


def check_scores(scores: np.ndarray) -> None:
    """Raises BadRequest where a score [batch, 1] is NaN, to which a request that keeps all rules
    may lead."""
    bad = np.isnan(scores)
    if bad.any():
        raise BadRequest(
            f"the score of row {np.argmax(bad)} (counted from 0) is NaN: its logit is not finite, "
            "because a numerical of the row or weights of the model are too large for its precision"
        )


class _TensorChecker:
    """One tensor: its form, then all of its values at once."""

    def __init__(self, tensor: ServedTensor, interface: Interface):
        self.tensor = tensor
        self._dtype, self._dims = np.dtype(tensor.dtype), tensor.dims
        self._unknown_is_zero = interface.unknown_ids == UNKNOWN_IS_ZERO
        self._way_out = unknown_ids_way_out(interface)
        self._features = [f for f in interface.features if f.input == tensor.name]
        self._columns = int(np.prod(tensor.dims))
        self._is_history = tensor.name in interface.histories
        self._is_numerical = any(f.cardinality is None for f in self._features)
        if self._is_numerical or not self._features:
            return
        # An id, plus 1 where -1 is allowed, is one of `_limits` values from 0 on. Seen as unsigned,
        # a negative one is large: one comparison for both ends.
        least, end = id_limits(self._features, tensor)
        self._shifts = (-least).astype(self._dtype)
        self._unsigned = np.dtype(f"u{self._dtype.itemsize}")
        # An id that the dtype holds is below this whatever the cardinality is.
        most = np.uint64(np.iinfo(self._dtype).max) + np.uint64(1)
        limits = end.astype(np.uint64) + (-least).astype(np.uint64)
        self._limits = np.minimum(limits, most).astype(self._unsigned)
        self._is_padded = bool(self._shifts.any())

    def check_form(self, array: np.ndarray) -> None:
        """Raises BadRequest for another dtype or shape."""
        if array.dtype != self._dtype or array.shape[1:] != self._dims or not array.ndim:
            raise BadRequest(
                f"tensor '{self.tensor.name}' is {array.dtype} {list(array.shape)}; needed: "
                f"{self._dtype} [batch, {', '.join(map(str, self._dims))}]"
            )

    def check_values(self, array: np.ndarray) -> np.ndarray:
        """The values, with 0 for unknown ids where those are zero."""
        if not self._features:
            return array
        if self._is_numerical:
            if not np.isfinite(array).all():
                self._refuse(array, ~np.isfinite(array), "numericals are finite")
            return array
        checked = self._checked_ids(array)
        if self._is_history:
            self._check_padding(checked)
        return checked

    def _checked_ids(self, array: np.ndarray) -> np.ndarray:
        """Ids, all in range."""
        good = self._are_known(array)
        if good.all():
            return array
        if self._unknown_is_zero:
            # Negative ids are nothing that training could have missed: they stay, and are refused.
            array = np.where(good.reshape(array.shape) | (array < 0), array, 0)
            good = self._are_known(array)
            if good.all():
                return array
        self._refuse(array, ~good)
        return array

    def _are_known(self, array: np.ndarray) -> np.ndarray:
        """Which ids are in range, bool [batch, columns]."""
        ids = array.reshape(len(array), self._columns)
        if self._is_padded:
            ids = ids + self._shifts
        return ids.view(self._unsigned) < self._limits

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
                rule += self._way_out
        raise self._bad_request(feature.name, row, f"row {row}", str(value), rule)

    def _check_padding(self, ids: np.ndarray) -> None:
        """Raises BadRequest for a 0 that is no padding in front."""
        bad = find_misplaced_padding(ids)
        if bad is None:
            return
        row, feature, step, is_behind_id = bad
        name, first_name = (
            feature_at(self._features, self.tensor.name, number * ids.shape[2]).name
            for number in (feature, 0)
        )
        found, rule = "0 behind an id", "zeros are padding, and stand in front of a history"
        if not is_behind_id:
            found = f"{ids[row, feature, step]}, and '{first_name}' has {ids[row, 0, step]}"
            rule = "zeros are padding, and stand at the same steps of all histories of a row"
        raise self._bad_request(name, row, f"row {row}, step {step}", found, rule)

    def _bad_request(self, feature: str, row: int, place: str, found: str, rule: str) -> BadRequest:
        return BadRequest(
            f"tensor '{self.tensor.name}': feature '{feature}', {place} (counted from 0): {found}; "
            f"{rule}",
            feature=feature,
            row=row,
            found=found,
            rule=rule,
        )


def _listing(names) -> str:
    return ", ".join(sorted(names)) or "(none)"
