"""The items of highest score of each row of a request, exactly, from all items of a catalogue."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from deployment.serving import checksums
from deployment.serving.checks import BadRequest, RequestChecker, check_scores
from deployment.serving.interface import CANDIDATES_FILE, EXCLUDED, NO_ITEM, TOP, Interface

# Items that are scored as one batch.
_BLOCK = 4096


def _check_integers(
    name: str, values: np.ndarray, shape: tuple[int, int | None], allowed: range, rule: str
) -> None:
    """Raises BadRequest unless a tensor is int64 [rows, 1], or [rows, any], of allowed values."""
    rows, columns = shape
    is_matrix = values.dtype == np.int64 and values.ndim == 2 and len(values) == rows
    if not is_matrix or columns not in (None, values.shape[1]):
        raise BadRequest(
            f"tensor '{name}' is {values.dtype} {list(values.shape)}; needed: int64 [{rows}, "
            f"{columns or 'items'}]"
        )
    is_bad = (values < allowed.start) | (values >= allowed.stop)
    if is_bad.any():
        row, place = np.argwhere(is_bad)[0]
        raise BadRequest(
            f"tensor '{name}', row {row} (counted from 0): expected {rule}, got "
            f"{values[row, place]}"
        )


class CatalogueSearch:
    """Searches a catalogue for the items of each user. Thread-safe if `logits_of` is.

    Args:
        folder: version folder with the catalogue, int64 [items, *dims], by ascending item id, which
            is the first value of an item.
        interface: interface of the model, whose input `candidate_input` the catalogue fills; of
            encoded requests.
        logits_of: computes logits [batch, 1] of all inputs.

    Raises:
        ValueError: the catalogue is missing or damaged.
    """

    def __init__(
        self,
        folder: str | Path,
        interface: Interface,
        logits_of: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    ):
        path = Path(folder) / CANDIDATES_FILE
        checksums.verify(folder, CANDIDATES_FILE)
        try:
            self._candidates = np.load(path)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(
                f"{path}: cannot be read ({error}); deploy the checkpoint again"
            ) from None
        self._ids = self._candidates.reshape(len(self._candidates), -1)[:, 0]
        self._interface, self._logits_of = interface, logits_of
        features = (f for f in interface.features if f.input == interface.candidate_input)
        self._num_ids = next((f.cardinality or 0 for f in features), 0)
        self._checker = RequestChecker(interface)

    def check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the request's tensors, checked; `top` and `excluded_items` are optional.

        Raises:
            BadRequest: a rule is broken.
        """
        arrays, most = dict(arrays), self._interface.top
        top, excluded = arrays.pop(TOP, None), arrays.pop(EXCLUDED, None)
        checked = self._checker.check(arrays)
        rows = len(next(iter(checked.values())))
        top = np.full([rows, 1], most) if top is None else top
        excluded = np.empty([rows, 0], np.int64) if excluded is None else excluded
        numbers = f"1 to {most} items, the --top_items of the deployment"
        ids = f"ids of items in [0, {self._num_ids}), or {NO_ITEM} for no item"
        _check_integers(TOP, top, (rows, 1), range(1, most + 1), numbers)
        _check_integers(EXCLUDED, excluded, (rows, None), range(NO_ITEM, self._num_ids), ids)
        return checked | {TOP: top, EXCLUDED: excluded}

    def search(self, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the items of checked tensors.

        Returns:
            Items, int64 [batch, largest top], the highest logit first and of equal logits the lower
            item first, and their logits, float32. Rows with fewer items are filled with -1 and
            -inf.

        Raises:
            BadRequest: a logit is NaN.
        """
        inputs = {name: array for name, array in arrays.items() if name not in (TOP, EXCLUDED)}
        counts = arrays[TOP][:, 0].tolist()
        rows, count = len(counts), max(counts)
        items = np.full([rows, count], NO_ITEM, np.int64)
        logits = np.full([rows, count], -np.inf, np.float32)
        for row in range(rows):
            own = {name: array[row : row + 1] for name, array in inputs.items()}
            places, highest = self._of_user(own, arrays[EXCLUDED][row], row, counts[row])
            items[row, : len(places)] = self._ids[places]
            logits[row, : len(places)] = highest
        return items, logits

    def _of_user(
        self, inputs: Mapping[str, np.ndarray], excluded: np.ndarray, row: int, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of the top items of one row [1, *dims], and their logits."""
        logits = np.empty(len(self._ids), np.float32)
        for start in range(0, len(self._ids), _BLOCK):
            block = self._candidates[start : start + _BLOCK]
            repeated = {
                name: np.repeat(array, len(block), axis=0) for name, array in inputs.items()
            }
            answer = self._logits_of(repeated | {self._interface.candidate_input: block})
            logits[start : start + _BLOCK] = answer[:, 0]
        check_scores(logits.max(keepdims=True), row)  # NaN if one is
        left = np.flatnonzero(~np.isin(self._ids, excluded))
        count = min(top, len(left))
        if not count:
            return left, logits[left]
        least = np.partition(logits[left], -count)[-count]
        near = left[logits[left] >= least]
        places = near[np.argsort(-logits[near], kind="stable")[:count]]
        return places, logits[places]
