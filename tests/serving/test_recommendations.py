"""Top items of a server compared with those of `--mode recommend`."""

import csv

import numpy as np
import pytest

from tests.serving.test_json import asked

TOP = 5  # of conftest.py


def recommended(trained, folder):
    """Items and scores of each user of the split `test`, by user."""
    path = folder / "top.csv"
    flags = ["--mode=recommend", f"--top={TOP}", f"--predictions_path={path}", "--cpu", "--seed=1"]
    flags += [f"--dataset_path={trained.data}", f"--restore_checkpoint_path={trained.checkpoint}"]
    assert trained.recipe.main(["prog", f"--run_dir={folder / 'run'}", *flags]) == 0
    lines = {}
    for line in csv.DictReader(path.open()):
        lines.setdefault(int(line["user"]), []).append((int(line["item"]), float(line["score"])))
    return lines


def by_name(answer, *names):
    outputs = {output["name"]: output for output in answer["outputs"]}
    return [np.reshape(outputs[name]["data"], outputs[name]["shape"]) for name in names]


@pytest.mark.parametrize("recipe", ["ncf", "sim"])
def test_top_items(recipe, server, served, tmp_path):
    """Neighbors may change places within the rounding."""
    expected = recommended(served[recipe].trained, tmp_path)
    arrays = dict(served[recipe].arrays)
    arrays.pop("item", None), arrays.pop("target_features", None)
    users = arrays["user" if recipe == "ncf" else "user_features"][:, 0]
    last = [np.flatnonzero(users == user)[-1] for user in sorted(expected)][:20]
    request = {name: array[last] for name, array in arrays.items()}
    status, answer = asked(server, f"{recipe}_top", request)
    assert status == 200, answer
    items, scores = by_name(answer, "items", "scores")

    for row, user in enumerate(users[last]):
        top, values = zip(*expected[user], strict=True)
        np.testing.assert_allclose(scores[row], values, rtol=0, atol=1e-5)
        unlike = np.array(values) - np.array([*values[1:], -1]) > 1e-5
        for stop in np.flatnonzero(unlike[:-1]) + 1:
            assert set(items[row, :stop]) == set(top[:stop])

    request["excluded_items"] = np.stack([items[:, 0], np.full(len(items), -1)], axis=1)
    status, answer = asked(server, f"{recipe}_top", request)
    assert status == 200, answer
    (others,) = by_name(answer, "items")
    np.testing.assert_array_equal(others[:, : TOP - 1], items[:, 1:])


def test_bad_requests(server, served):
    request = {"user": np.array([[1], [10**6]])}
    status, error = asked(server, "ncf_top", request)
    assert status == 400 and "feature 'user', row 1" in error
