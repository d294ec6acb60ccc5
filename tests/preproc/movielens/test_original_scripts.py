"""Root scripts of NVIDIA's NCF recipe: prepare_dataset.sh, convert.py and their neighbors."""

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import yaml

import convert

ITEMS, TRAINED = 30, 25  # each user has all but 5 items, the last one held out


@pytest.fixture
def raw(tmp_path):
    """Folder with ml-20m.zip: the ratings of 40 users, in the order of their items."""
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(40):
        items = [(user + i) % ITEMS for i in range(TRAINED + 1)]
        lines += [f"{user},{item},3.5,{1000 + time}" for time, item in enumerate(items)]
    with zipfile.ZipFile(tmp_path / "ml-20m.zip", "w") as archive:
        archive.writestr("ml-20m/ratings.csv", "\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def shell(root):
    def run(script, *arguments):
        command = ["bash", root / script, *map(str, arguments)]
        env = {**os.environ, "PYTHON": sys.executable}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    return run


def lists_of(folder):
    """Users and items of the test lists, [lists, rows]."""
    return [
        np.fromfile(folder / f"test/{name}.bin", np.int32).reshape(40, -1)
        for name in ("user", "item")
    ]


def test_prepared_data_set(raw, shell):
    done = shell("prepare_dataset.sh", "ml-20m", raw)
    assert done.returncode == 0, done.stderr
    output = raw / "cache/ml-20m"
    assert f"Dataset ml-20m successfully prepared at: {output}" in done.stdout
    spec = yaml.safe_load((output / "feature_spec.yaml").read_text())
    metadata = spec["metadata"]
    assert (metadata["seed"], metadata["test_samples_per_series"]) == (1, 101)
    users, items = lists_of(output)
    np.testing.assert_array_equal(items[:, 0], (users[:, 0] + TRAINED) % ITEMS)
    # Only the items of train/ are left out, 25 of the 30.
    distances = (items[:, 1:] - users[:, 1:]) % ITEMS
    counts = np.bincount(distances.ravel(), minlength=ITEMS)
    assert not counts[:TRAINED].any(), "a negative is not in train/"
    np.testing.assert_allclose(counts[TRAINED:] / counts.sum(), 1 / 5, atol=0.03)
    again = shell("prepare_dataset.sh", "ml-20m", raw)
    assert again.returncode == 0 and "Using cached preprocessed data" in again.stdout


def test_convert(raw, shell, capsys):
    with zipfile.ZipFile(raw / "ml-20m.zip") as archive:
        archive.extractall(raw)
    command = ["--path", str(raw / "ml-20m/ratings.csv"), "--output", str(raw / "out")]
    assert convert.main([*command, "--valid_negative", "7", "-s", "3"]) == 0
    first = lists_of(raw / "out")[1]
    assert first.shape == (40, 8)
    assert convert.main([*command, "--valid_negative", "7", "-s", "4"]) == 0, "replaced"
    assert (lists_of(raw / "out")[1] != first).any()


def test_missing_archive(tmp_path, shell, raw):
    missing = tmp_path / "none"
    for script in ("prepare_dataset.sh", "download_dataset.sh"):
        done = shell(script, "ml-1m", missing)
        assert done.returncode == 1
        assert "https://files.grouplens.org/datasets/movielens/ml-1m.zip" in done.stderr
        assert shell(script, "netflix", missing).returncode == 1
    assert shell("download_dataset.sh", "ml-20m", raw).returncode == 0


def test_checksum(raw, shell):
    done = shell("verify_dataset.sh", "ml-20m", raw)
    assert done.returncode == 1 and "expected cd245b17a1ae2cc31bb14903e1204af3" in done.stdout
    assert "is neither here nor" in shell("verify_dataset.sh", "ml-1m", raw).stdout
