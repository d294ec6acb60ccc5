"""Raw rows of models of users and items: the rows of the test split by their original ids."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dataloading.histories.dataset import blocks
from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from tests.deployment.trained import TrainedFixture, train_ncf_of_ratings, train_sim_of_events
from tests.raw_shop import Order, RawModel, write_files


def ratings(folder: Path) -> RawModel:
    """NeuMF: persons, texts, and movies, integers."""
    trained = train_ncf_of_ratings(folder)
    read = (np.fromfile(trained.data / f"test/{name}.bin", np.int32) for name in ("user", "item"))
    persons, movies = map(_values(trained), ("user", "item"), read)
    rows = [{"person": p, "movie": int(m)} for p, m in zip(persons, movies, strict=True)]
    return _with_rows(trained, folder, rows)


def events(folder: Path) -> RawModel:
    """SIM: shoppers, integers, books, texts, and histories, lists of books.

    The last rows are the first ones with unknown books in the history, which have no effect.
    """
    trained = train_sim_of_events(folder)
    spec = FeatureSpec.from_yaml(trained.data / "feature_spec.yaml")
    parts = blocks(spec, "test", ["user_id", "item_id_trgt", "item_id_pos"])
    users, targets, histories = map(np.concatenate, zip(*parts, strict=True))
    values = _values(trained)
    shoppers, books = values("user_id", users[:, 0]), values("item_id_trgt", targets[:, 0])
    read = [values("item_id_trgt", row[row > 0]) for row in histories]
    rows = [
        {"shopper": int(shopper), "book": book, "item_id_pos": history}
        for shopper, book, history in zip(shoppers, books, read, strict=True)
    ]
    model = _with_rows(trained, folder, rows)
    for row in rows[:3]:
        rows.append(row | {"item_id_pos": ["new", *row["item_id_pos"], "unknown"]})
    write_files(folder, rows)
    return model._replace(expected=np.concatenate([model.expected, model.expected[:3]]))


def _values(trained: TrainedFixture) -> Callable[[str, np.ndarray], list[Any]]:
    encoder = Encoder.load(trained.data / "encoder")
    return lambda feature, ids: encoder.decode(feature, ids).to_pylist()


def _with_rows(trained: TrainedFixture, folder: Path, rows: list[Order]) -> RawModel:
    expected = trained.scores(folder / "scores")
    return RawModel(trained, write_files(folder, rows), rows, expected)
