"""The lines of generated reviews and of their items' metadata, in the form of Amazon's of 2014."""

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_DAY, LAST_DAY = 10_000, 16_273  # days since 1970: in May 1997, in July 2014
_NO_METADATA = 100  # 1 of 100 items has no metadata
_TEXTS = 2000  # different review texts
_TEXT_WORDS = 75.0  # median; with what is around it a line has about 750 bytes, as Amazon's have
_BLOCK_REVIEWS = 50_000
_WORDS = (
    "a all and as at author beautiful been book but by chapter characters could edition "
    "ending enjoyed every fast first for found from good great had has have her his history "
    "if in is it just last like long love made me more my never novel of old on one page plot "
    "quite read reader recommend second series she so some story style that the them this "
    "time to true very was well were which who will with world would wrote years you"
)
# Words that a reader of JSON has to look at twice.
_ODD_WORDS = ('"masterpiece"', "don't", "caf\u00e9", "\u6f22\u5b57", "back\\slash", "\U0001f600")
_SUBJECTS = (
    "Children's Books",
    "History",
    "Science & Math",
    'The "Classics"',
    "Crime",
    "Caf\u00e9",
)


def review_lines(random: np.random.Generator, user, item, day) -> Iterator[bytes]:
    """Yields lines of JSON, some thousands at a time, of numbers of users, items and days [n]."""
    texts, summaries = _texts(random, _TEXTS, _TEXT_WORDS), _texts(random, _TEXTS, 4.0)
    days = np.arange(FIRST_DAY, LAST_DAY + 1).astype("datetime64[D]")
    dates = pc.strftime(pa.array(days), "%m %d, %Y").to_pylist()
    for start in range(0, len(user), _BLOCK_REVIEWS):
        block = slice(start, start + _BLOCK_REVIEWS)
        size = len(user[block])
        helpful = random.integers(0, 5, size)
        columns = (
            helpful,
            helpful + random.integers(0, 3, size),
            random.integers(0, _TEXTS, size),
            random.integers(1, 6, size),
            random.integers(0, _TEXTS, size),
            day[block],
        )
        users, items = names(b"A", 12, user[block]), names(b"B00", 7, item[block])
        yield "".join(
            f'{{"reviewerID": "{who}", "asin": "{what}", "helpful": [{votes}, {of_all}], '
            f'"reviewText": {texts[text]}, "overall": {stars}.0, "summary": {summaries[summary]}, '
            f'"unixReviewTime": {at * 86_400}, "reviewTime": "{dates[at - FIRST_DAY]}"}}\n'
            for who, what, votes, of_all, text, stars, summary, at in zip(
                users, items, *(column.tolist() for column in columns), strict=True
            )
        ).encode()


def _texts(random: np.random.Generator, count: int, words: float) -> list[str]:
    """Texts of about `words` words, as JSON strings: quoted, escaped."""
    lengths = 1 + random.lognormal(np.log(words), 0.8, count).astype(np.int64)
    vocabulary = np.array([*_WORDS.split() * 5, *_ODD_WORDS], object)
    drawn = vocabulary[random.integers(0, len(vocabulary), lengths.sum())]
    return [json.dumps(" ".join(text)) for text in np.split(drawn, np.cumsum(lengths)[:-1])]


def names(prefix: bytes, digits: int, numbers: np.ndarray) -> list[str]:
    """Integers [n], 0 to 36^5 - 1 -> a prefix and digits of base 36, different and in no order."""
    # The last digits are a permutation of the numbers, as the factor has no divisor of 36; those
    # before them are another.
    period = 36**6
    mixed = numbers.astype(np.int64) * 1_234_567_891 % period
    front = numbers.astype(np.int64) * 987_654_323 % period
    powers = 36 ** np.arange(5, -1, -1)
    values = np.concatenate(
        [front[:, None] // powers[12 - digits :] % 36, mixed[:, None] // powers % 36], axis=1
    )
    text = np.empty((len(numbers), len(prefix) + digits), np.uint8)
    text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    text[:, len(prefix) :] = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)[
        values
    ]
    return text.view(f"S{text.shape[1]}").ravel().astype(str).tolist()


def metadata_lines(
    random: np.random.Generator, first_item: np.ndarray, literal: bool
) -> Iterator[bytes]:
    """Yields a line for each item that has metadata, by item.

    Args:
        first_item: category c has the items first_item[c] to first_item[c + 1] - 1.
        literal: Python literals instead of JSON.
    """
    num_items = int(first_item[-1])
    asins = names(b"B00", 7, np.arange(num_items))
    prices = random.integers(99, 9999, num_items).tolist()
    several = (random.random(num_items) < 0.2).tolist()
    absent = (random.random(num_items) < 1 / _NO_METADATA).tolist()
    for category, (start, end) in enumerate(itertools.pairwise(first_item.tolist())):
        subject = _SUBJECTS[category % len(_SUBJECTS)]
        path = ["Books", subject, f"{subject} {category}"]
        for i in range(start, end):
            if absent[i]:
                continue
            line = {
                "asin": asins[i],
                "title": f'Volume {i}: the reader\'s "choice"',
                "price": prices[i] / 100,
                "imUrl": f"http://ecx.images.example/{asins[i]}.jpg",
                "salesRank": {"Books": i + 1},
                "categories": [["Books", "New & Used"], path] if several[i] else [path],
            }
            text = repr(line) if literal else json.dumps(line, ensure_ascii=False)
            yield text.encode() + b"\n"
