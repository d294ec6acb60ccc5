"""Items that a served model recommends."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from deployment.client.client import Client, WrongAnswer
from deployment.serving.interface import ITEMS, NO_ITEM, SCORES

MAX_ROWS = 16  # of a request: each has the work of a whole catalogue


class RecommendedItem(NamedTuple):
    """An item of a row.

    Attributes:
        row: row of the requests, from 0.
        rank: place among the items of the row, from 1.
        item: original value, or id of the data set.
        score: probability.
    """

    row: int
    rank: int
    item: str
    score: np.float32


def recommends(config) -> bool:
    """Returns whether a model answers items; `config` is Triton's `ModelConfig`."""
    return any(output.name == ITEMS for output in config.output)


def recommendations(
    client: Client, requests: Iterable[Mapping[str, np.ndarray]]
) -> Iterator[RecommendedItem]:
    """Yields the items of the rows of requests, in their order.

    Raises:
        RequestRefused, ServerLost, WrongAnswer: see there.
    """
    first_row = 0
    for number, arrays in enumerate(requests):
        message = client.prepare(arrays, str(number))
        outputs = client.outputs(message)
        if not {ITEMS, SCORES} <= outputs.keys():
            raise WrongAnswer(f"the answer has {', '.join(outputs)}, not {ITEMS} and {SCORES}")
        items, scores = outputs[ITEMS], outputs[SCORES]
        is_text = items.dtype == object
        for row, rank in np.argwhere(items != (b"" if is_text else NO_ITEM)):
            item = items[row, rank].decode() if is_text else str(items[row, rank])
            yield RecommendedItem(first_row + int(row), int(rank) + 1, item, scores[row, rank])
        first_row += len(items)
