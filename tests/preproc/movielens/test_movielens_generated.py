"""Generated ratings: MovieLens's form, skewed, and with tastes that a model can learn."""

import numpy as np
import pytest

from dataloading.interactions.unseen_items import draw_unseen
from preproc.movielens import generate_ratings
from preproc.movielens.generate_ratings import RatingSizes, generate, main
from tests.preproc.movielens.movielens_reference import rows_of


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("log"), RatingSizes(40_000, 400, 1000), 3)


def test_form(log):
    """The ratings of a user, by time; ids of movies have gaps."""
    header, *lines = log.read_text().splitlines()
    assert header == "userId,movieId,rating,timestamp" and len(lines) == 40_000
    assert {line.split(",")[2] for line in lines} == {f"{half / 2}" for half in range(1, 11)}
    rows = np.array(rows_of(log))
    users, movies, times = rows.T
    assert len(np.unique(rows[:, :2], axis=0)) == 40_000
    assert np.unique(users).tolist() == list(range(1, 401))
    assert np.all((np.diff(users) > 0) | ((np.diff(users) == 0) & (np.diff(times) >= 0)))
    assert len(np.unique(movies)) == 1000 and movies.min() >= 1 and movies.max() > 1000


def test_learnable_tastes(log):
    """Hit rates of the last movie among 100 unseen ones: popularity exceeds chance, and movies seen
    together with those of the user exceed popularity."""
    users, movies, _ = np.array(rows_of(log)).T
    user = np.unique(users, return_inverse=True)[1]
    movie = np.unique(movies, return_inverse=True)[1]
    num_users, num_movies = user.max() + 1, movie.max() + 1
    keys = np.sort(user * num_movies + movie)
    negatives = draw_unseen(np.arange(num_users), num_movies, keys, 100, 0)
    last = np.append(user[1:] != user[:-1], True)
    lists = np.column_stack([movie[last], negatives])
    seen = np.zeros((num_users, num_movies), np.float32)
    seen[user[~last], movie[~last]] = 1
    popularity = seen.sum(axis=0)
    weighted = seen / np.sqrt(popularity + 1)
    alike = weighted.T @ weighted
    np.fill_diagonal(alike, 0)

    def hit_rate(scores):
        mine = np.take_along_axis(scores, lists, axis=1)
        return np.mean(np.sum(mine[:, 1:] >= mine[:, :1], axis=1) < 10)

    popular = hit_rate(np.broadcast_to(popularity, seen.shape))
    assert popular > 0.2
    assert hit_rate(seen @ alike) > popular + 0.1


def test_seeds_and_blocks(tmp_path, monkeypatch):
    """Equal arguments give equal bytes; blocks of any size keep all users."""
    sizes = RatingSizes(2000, 40, 200)
    first, again, other = (
        generate(tmp_path / str(i), sizes, seed).read_bytes() for i, seed in enumerate((0, 0, 1))
    )
    assert first == again != other
    monkeypatch.setattr(generate_ratings, "_BLOCK_RATINGS", 30)  # below what some users have
    rows = rows_of(generate(tmp_path / "blocks", sizes, 0))
    assert len(rows) == 2000
    assert sorted({user for user, *_ in rows}) == list(range(1, 41))


def test_command(tmp_path, capsys):
    assert main(["--output", str(tmp_path), "--ratings", "10000"]) == 0
    assert capsys.readouterr().out.startswith("10,000 ratings by 69 users of 600 movies")
    assert [path.name for path in tmp_path.iterdir()] == ["ratings.csv"]
    flags = ["--ratings", "900", "--users", "30", "--movies", "80", "--seed", "5"]
    before = (tmp_path / "ratings.csv").read_bytes()
    assert main(["--output", str(tmp_path), *flags]) == 2
    messages = capsys.readouterr().err
    assert f"error: {tmp_path}/ratings.csv exists" in messages and "--overwrite" in messages
    assert (tmp_path / "ratings.csv").read_bytes() == before
    assert main(["--output", str(tmp_path), *flags, "--overwrite"]) == 0
    assert capsys.readouterr().out.startswith("900 ratings by 30 users of 80 movies")
