"""Generates reviews and item metadata that look like Amazon's of 2014, for demos and tests.

A user prefers three categories and turns from one to the next as time goes by, so that a history
predicts the next item better than a user or an item alone. Users' numbers of reviews and items'
popularity follow power laws. As in Amazon's files, reviews are grouped by item, their times are
whole days, and an item may have several lists of categories or, 1 in 100, no metadata.

python -m preproc.amazon_books.generate_reviews --output raw --reviews 100000
"""

import contextlib
import gzip
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from config.command import CommandOptions, parse
from config.flag import flag
from preproc.generators import group_bounds, power_law, settle_size
from runtime.cli import exit_status
from runtime.files.outputs import output_file

REVIEWS, METADATA = "reviews_Books.json", "meta_Books.json"
# Defaults: reviews to a user, reviews to an item, items to a category, most categories.
_PER_USER, _PER_ITEM, _PER_CATEGORY, _MOST_CATEGORIES = 6, 10, 100, 2000
_MOST = 36**5  # users, items; different numbers below it have different names
# User u of n writes in proportion to 1 / (u + n * _FLATNESS).
_FLATNESS = 0.005
_TASTES = 3  # categories that a user prefers
# Of a review: by the user's present taste, by any of the user's tastes, by none.
_BY_TASTE, _BY_ANY_TASTE = 0.7, 0.2
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


@dataclass(frozen=True)
class ReviewSizes(CommandOptions):
    """Numbers of reviews, users, items and categories; raises ValueError for one out of range."""

    reviews: int = flag(100_000, "number of reviews")
    users: int | None = flag(None, f"default: one for {_PER_USER} reviews")
    items: int | None = flag(None, f"default: one for {_PER_ITEM} reviews")
    categories: int | None = flag(
        None, f"default: one for {_PER_CATEGORY} items, at most {_MOST_CATEGORIES}"
    )

    def __post_init__(self):
        super().__post_init__()
        settle_size(self, "reviews", 0, 1, 1 << 31, "as many as a run can hold")
        users = max(1, min(self.reviews // _PER_USER, _MOST))
        settle_size(self, "users", users, 1, min(self.reviews, _MOST), "each user writes a review")
        items = max(1, min(self.reviews // _PER_ITEM, _MOST))
        settle_size(self, "items", items, 1, _MOST, "as many as there are names")
        categories = max(1, min(self.items // _PER_CATEGORY, _MOST_CATEGORIES))
        reason = "each category has an item"
        settle_size(self, "categories", categories, 1, self.items, reason)


def generate(folder: Path, sizes: ReviewSizes, seed: int, literal: bool, compress: bool) -> None:
    """Writes a file of reviews and one of metadata, each of which appears when it is whole.

    The same arguments give the same bytes. All reviews' numbers are in memory at a time: about
    80 bytes a review.

    Args:
        folder: files of the same names are replaced.
        literal: metadata as Python literals, the form of 2014, instead of JSON.
        compress: gzip, with .gz appended to the names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng([seed, 0])
    first_item = group_bounds(sizes.categories, sizes.items)
    user, item, day = _events(random, sizes, first_item)
    ending = ".gz" if compress else ""
    with _writable(folder / (REVIEWS + ending)) as file:
        for lines in review_lines(np.random.default_rng([seed, 1]), user, item, day):
            file.write(lines)
    with _writable(folder / (METADATA + ending)) as file:
        for line in metadata_lines(np.random.default_rng([seed, 2]), first_item, literal):
            file.write(line)


@contextlib.contextmanager
def _writable(path: Path):
    # No name and no time in the gzip header: the same lines give the same bytes.
    with (
        output_file(path) as plain,
        gzip.GzipFile("", "wb", 1, plain, mtime=0)
        if path.suffix == ".gz"
        else contextlib.nullcontext(plain) as file,
    ):
        yield file


def _events(random: np.random.Generator, sizes: ReviewSizes, first_item: np.ndarray):
    """User, item and day of all reviews, [reviews] each, by item."""
    weights = 1 / (np.arange(sizes.users) + sizes.users * _FLATNESS)
    lengths = 1 + random.multinomial(sizes.reviews - sizes.users, weights / weights.sum())
    user = np.repeat(np.arange(sizes.users, dtype=np.int32), lengths)
    # How far its user has come: 0 up to 1, in order, with no two reviews at the same place.
    position = np.arange(sizes.reviews) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    progress = (position + random.random(sizes.reviews)) / lengths[user]

    tastes = power_law(random, sizes.categories, (sizes.users, _TASTES))
    draw = random.random(sizes.reviews)
    taste = np.where(
        draw < _BY_TASTE, progress * _TASTES, random.integers(0, _TASTES, sizes.reviews)
    ).astype(np.int64)
    category = np.where(
        draw < _BY_TASTE + _BY_ANY_TASTE,
        tastes[user, taste],
        power_law(random, sizes.categories, sizes.reviews),
    )
    first = first_item[category]
    item = (first + power_law(random, first_item[category + 1] - first, sizes.reviews)).astype(
        np.int32
    )

    span = LAST_DAY - FIRST_DAY
    start = random.integers(0, span // 2, sizes.users)
    duration = random.integers(30, span // 2, sizes.users)
    day = (FIRST_DAY + start[user] + progress * duration[user]).astype(np.int32)
    by_item = np.argsort(item, kind="stable")
    return user[by_item], item[by_item], day[by_item]


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


@dataclass(frozen=True, kw_only=True)
class ReviewOptions(ReviewSizes):
    """Numbers, seed and folder of the files."""

    output: Path = flag(MISSING, "folder for the files; made if absent")
    seed: int = flag(0, "other seeds give other content", at_least=0)
    literal_metadata: bool = flag(
        False, "metadata as Python literals, as Amazon's of 2014, instead of JSON"
    )
    gzip: bool = flag(False, "write .json.gz")


def main(argv: list[str] | None = None) -> int:
    """Writes the two files into a folder; returns the exit status."""

    def work() -> None:
        options = parse(ReviewOptions, argv, "preproc.amazon_books.generate_reviews", __doc__)
        generate(options.output, options, options.seed, options.literal_metadata, options.gzip)
        print(
            f"{options.reviews:,} reviews by {options.users:,} users of {options.items:,} items in "
            f"{options.categories:,} categories in {options.output}"
        )

    return exit_status(work, "interrupted; each file that is there is complete")


if __name__ == "__main__":
    sys.exit(main())
