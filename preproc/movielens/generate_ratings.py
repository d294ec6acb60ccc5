"""Generates a ratings.csv that looks like MovieLens 20M's, for demos, tests and benchmarks.

A user likes three genres, one of them most, and mostly rates the popular movies of these, so that a
model of users and movies predicts better than popularity alone. Users' numbers of ratings
are skewed, 20 or more each; movies' popularity follows a power law. As in MovieLens, rows are
grouped by user, movies' ids have gaps, and times are whole seconds.

python -m preproc.movielens.generate_ratings --output raw --ratings 1000000
"""

import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from config.command import CommandOptions, parse
from config.flag import flag
from dataloading.keys.distinct import distinct
from preproc.generators import group_bounds, settle_size
from runtime.cli import exit_status
from runtime.files.disk import write_errors_name
from runtime.files.outputs import output_file

RATINGS = "ratings.csv"
HEADER = b"userId,movieId,rating,timestamp\n"
LEAST_RATINGS = 20  # of a user, as in MovieLens
# Defaults, as MovieLens 20M has them: ratings to a user, movies to the square root of ratings.
_PER_USER, _MOVIES_PER_ROOT = 144, 6
_MOST_SHARE = 2  # a user rates 1 / _MOST_SHARE of all movies at most
_MOVIES_PER_GENRE, _MOST_GENRES = 60, 64
_TASTES = np.array([0.5, 0.3, 0.2])  # of the three genres that a user likes
_BY_TASTE = 0.85  # of the ratings; the others are by popularity alone
_SKEW = 1000  # of popularity within a genre
_SPREAD = 1.0  # standard deviation of the logarithm of users' numbers of ratings
_STARS = np.array([f"{half / 2}" for half in range(1, 11)])
_FIRST_S, _SPAN_S = 820_454_400, 600_000_000  # from 1996 on, seconds since 1970
_BLOCK_RATINGS = 1 << 20  # made at a time


@dataclass(frozen=True)
class RatingSizes(CommandOptions):
    """Numbers of ratings, users and movies; raises ValueError for one out of range."""

    ratings: int = flag(1_000_000, "number of ratings")
    users: int | None = flag(None, f"default: one for {_PER_USER} ratings")
    movies: int | None = flag(
        None, f"default: {_MOVIES_PER_ROOT} times the square root of the ratings"
    )

    def __post_init__(self):
        super().__post_init__()
        movies = int(_MOVIES_PER_ROOT * max(0, self.ratings) ** 0.5)
        reason = "a user rates half of them at most"
        settle_size(self, "movies", movies, _MOST_SHARE * LEAST_RATINGS, 1 << 30, reason)
        users = max(1, self.ratings // _PER_USER)
        settle_size(self, "users", users, 1, 1 << 30, "the number of different ids")
        least, most = LEAST_RATINGS * self.users, self.movies // _MOST_SHARE * self.users
        reason = (
            f"each of {self.users:,} users rates {LEAST_RATINGS} to {most // self.users:,} movies"
        )
        settle_size(self, "ratings", 0, least, most, reason)


def generate(folder: Path, sizes: RatingSizes, seed: int, overwrite: bool = False) -> Path:
    """Writes ratings.csv, which appears when it is whole, into `folder`; returns its path.

    The same arguments give the same bytes. Memory: about 300 MiB, and 100 bytes per user or movie.

    Raises:
        ValueError: one is there and may not be replaced.
    """
    path = folder / RATINGS
    if path.exists() and not overwrite:
        raise ValueError(
            f"{path} exists and may hold real ratings; name another folder with --output, or "
            "replace it with --overwrite"
        )
    options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
    with write_errors_name(path), output_file(path) as file:
        file.write(HEADER)
        for rows in _blocks(sizes, seed):
            pa_csv.write_csv(rows, file, options)
    return path


def _blocks(sizes: RatingSizes, seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng([seed, 0])
    movies = _Movies(random, sizes.movies)
    lengths = _lengths(random, sizes)
    tastes = movies.random_genres(random, (sizes.users, len(_TASTES)))
    ends = np.cumsum(lengths)
    first = 0
    while first < sizes.users:
        before = ends[first] - lengths[first]
        stop = max(first + 1, int(np.searchsorted(ends, before + _BLOCK_RATINGS, "right")))
        yield _rows(np.random.default_rng([seed, 1, first]), movies, lengths, tastes, first, stop)
        first = stop


class _Movies:
    """Genres of a popularity, and in each of them movies of a popularity.

    Genre g has the movies with the places starts[g] to starts[g] + sizes[g] - 1, popular ones
    first; a place has an id of its own, so that ids carry no information.
    """

    def __init__(self, random: np.random.Generator, num_movies: int):
        num_genres = max(len(_TASTES), min(num_movies // _MOVIES_PER_GENRE, _MOST_GENRES))
        bounds = group_bounds(num_genres, num_movies)
        self.starts, self.sizes = bounds[:-1], np.diff(bounds)
        self.num_movies = num_movies
        self.ids = random.permutation(np.cumsum(random.integers(1, 10, num_movies)))

    def random_genres(self, random: np.random.Generator, shape) -> np.ndarray:
        place = random.integers(0, self.num_movies, shape)
        return np.searchsorted(self.starts, place, side="right") - 1

    def random_movies(self, random: np.random.Generator, tastes: np.ndarray) -> np.ndarray:
        """A movie's place for each row of tastes [n, 3], int64 [n]."""
        draw = random.random(len(tastes))
        which = np.searchsorted(np.cumsum(_BY_TASTE * _TASTES), draw, side="right")
        liked = which < len(_TASTES)
        genre = np.empty(len(tastes), np.int64)
        genre[liked] = tastes[liked, which[liked]]
        genre[~liked] = self.random_genres(random, np.count_nonzero(~liked))
        # Place p of n with a probability of about 1 / (p + n / _SKEW).
        head = self.sizes[genre] / _SKEW
        place = head * (_SKEW + 1) ** random.random(len(tastes)) - head
        return self.starts[genre] + np.minimum(place.astype(np.int64), self.sizes[genre] - 1)


def _lengths(random: np.random.Generator, sizes: RatingSizes) -> np.ndarray:
    most = sizes.movies // _MOST_SHARE
    weights = random.lognormal(0, _SPREAD, sizes.users)
    lengths = np.full(sizes.users, LEAST_RATINGS)
    while left := sizes.ratings - int(lengths.sum()):
        free = np.where(lengths < most, weights, 0)
        lengths = np.minimum(lengths + random.multinomial(left, free / free.sum()), most)
    return lengths


def _rows(
    random: np.random.Generator,
    movies: _Movies,
    lengths: np.ndarray,
    tastes: np.ndarray,
    first: int,
    stop: int,
) -> pa.Table:
    lengths = lengths[first:stop]
    user = np.repeat(np.arange(stop - first), lengths)
    place = _different_movies(random, movies, lengths, tastes[first:stop])
    place = place[np.argsort(user + random.random(len(user)))]
    own = np.any(
        np.searchsorted(movies.starts, place, side="right")[:, None] - 1
        == tastes[first:stop][user],
        axis=1,
    )
    stars = np.clip(np.rint(random.normal(np.where(own, 7.5, 5.5), 1.8)), 1, 10).astype(np.int64)
    # How far its user has come, 0 up to 1, upwards.
    progress = np.sort(user + random.random(len(user))) - user
    start = random.random(stop - first) * _SPAN_S
    duration = np.minimum(random.exponential(0.02 * _SPAN_S, stop - first), _SPAN_S - start)
    time = _FIRST_S + (start[user] + progress * duration[user]).astype(np.int64)
    return pa.table(
        {
            "userId": 1 + first + user,
            "movieId": movies.ids[place],
            "rating": pa.DictionaryArray.from_arrays(pa.array(stars - 1), pa.array(_STARS)).cast(
                pa.string()
            ),
            "timestamp": time,
        }
    )


def _different_movies(
    random: np.random.Generator, movies: _Movies, lengths: np.ndarray, tastes: np.ndarray
) -> np.ndarray:
    """Movies' places, user after user, none of them twice for a user, [sum of lengths]."""
    keys = np.empty(0, np.int64)  # user * num_movies + place, ascending
    missing = lengths
    while missing.any():
        user = np.repeat(np.arange(len(lengths)), missing)
        drawn = user * movies.num_movies + movies.random_movies(random, tastes[user])
        keys = distinct(np.concatenate([keys, drawn]))
        missing = lengths - np.bincount(keys // movies.num_movies, minlength=len(lengths))
    return keys % movies.num_movies


@dataclass(frozen=True, kw_only=True)
class RatingOptions(RatingSizes):
    """Numbers, seed and folder of the files."""

    output: Path = flag(MISSING, f"folder for {RATINGS}; made if absent")
    seed: int = flag(0, "other seeds give other content", at_least=0)
    overwrite: bool = flag(False, f"replace a {RATINGS} that is there, at the end")


def main(argv: list[str] | None = None) -> int:
    """Writes ratings.csv into a folder; returns the exit status."""

    def work() -> None:
        options = parse(RatingOptions, argv, "preproc.movielens.generate_ratings", __doc__)
        path = generate(options.output, options, options.seed, options.overwrite)
        print(
            f"{options.ratings:,} ratings by {options.users:,} users of {options.movies:,} movies "
            f"in {path}"
        )

    return exit_status(work, "interrupted; nothing was made")


if __name__ == "__main__":
    sys.exit(main())
