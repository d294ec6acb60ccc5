"""Search of a catalogue by original values: users, histories, items."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deployment.serving.catalogue_search import CatalogueSearch
from deployment.serving.checks import BadRequest
from deployment.serving.interface import EXCLUDED, INT64, NO_ITEM, TOP, Interface
from deployment.serving.raw.input_columns import item_encoding
from deployment.serving.raw.requests import RawRequests, column_values
from preproc.encoding.arrow_columns import InvalidValue, integers, refuse, texts
from preproc.encoding.encodings import FeatureEncoding, Identity
from preproc.encoding.lists import flatten
from preproc.encoding.vocabulary import Vocabulary

_LONGEST = 1 << 20  # items that a row leaves out


class RawSearch:
    """Requests with original values for a search, and its answer with original items. Thread-safe.

    Args:
        requests: encoder of the other columns.
        search: search of the catalogue.
        interface: interface of the model.
    """

    def __init__(self, requests: RawRequests, search: CatalogueSearch, interface: Interface):
        self._requests, self._search, self._dtype = requests, search, interface.items
        self._encoding = item_encoding(requests.encoder, interface)
        self._excluded = next(each for each in interface.columns if each.name == EXCLUDED)
        self._missing = pa.array(requests.encoder.missing_values)

    def check(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the encoded tensors of a request, checked.

        Raises:
            BadRequest: a rule is broken, such as an excluded item that is unknown.
        """
        tensors = dict(tensors)
        own = {name: tensors.pop(name) for name in (TOP, EXCLUDED) if name in tensors}
        if EXCLUDED in own:
            own[EXCLUDED] = self._item_ids(own[EXCLUDED])
        return self._search.check(self._requests.check(tensors) | own)

    def original_items(self, ids: NDArray[np.int64]) -> np.ndarray:
        """Returns the original values of item ids: int64 with -1, or texts with an empty one, for
        no item."""
        has_item = ids != NO_ITEM
        values = self._encoding.decode(ids[has_item])
        if self._dtype == INT64:
            items = np.full(ids.shape, NO_ITEM)
            items[has_item] = values.cast(pa.int64()).to_numpy()
            return items
        items = np.full(ids.shape, b"", object)
        items[has_item] = values.cast(pa.binary()).to_numpy(zero_copy_only=False)
        return items

    def _item_ids(self, tensor: np.ndarray) -> NDArray[np.int64]:
        """Returns the ids of lists of items, [rows, items]; -1 for no item."""
        try:
            lists = flatten(column_values(tensor, self._excluded), _LONGEST, self._missing)
            try:
                ids = _known_ids(self._encoding, lists.values, self._missing)
            except InvalidValue as bad:
                bad.index = int(lists.slots[bad.index])
                raise
        except InvalidValue as bad:
            place = f"column '{EXCLUDED}', row {bad.index // _LONGEST} (counted from 0)"
            message = f"{place}: expected {bad.rule}, got {bad.found}"
            raise BadRequest(message, EXCLUDED) from None
        rows, places = np.divmod(lists.slots, _LONGEST)
        result = np.full([len(tensor), places.max(initial=-1) + 1], NO_ITEM)
        result[rows, places] = ids
        return result


def _known_ids(encoding: FeatureEncoding, values: pa.Array, missing: pa.Array) -> NDArray[np.int64]:
    """Returns the ids of `plain` values; -1 for missing ones.

    Raises:
        InvalidValue: a value has no id.
    """
    if isinstance(encoding, Vocabulary):
        positions = encoding.positions(values)
        is_missing = texts(values, missing).is_null().to_numpy(zero_copy_only=False)
        is_unknown = (positions < 0) & ~is_missing
        ids, number = positions + encoding.first_id, len(encoding.values)
    else:
        assert isinstance(encoding, Identity)  # `items_dtype` refuses others
        ids, is_missing = integers(values, missing)
        number = encoding.cardinality
        is_unknown = ~is_missing & ((ids < 0) | (ids >= number))
    examples = encoding.decode(np.arange(min(3, number)) + encoding.num_ids - number).to_pylist()
    rule = f"one of the {number:,} items of the data set, such as {', '.join(map(str, examples))}"
    refuse(is_unknown, values, f"{rule} (leave others out: they are never recommended)")
    return np.where(is_missing, NO_ITEM, ids)
