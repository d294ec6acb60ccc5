"""`--nvidia_negatives`: test lists as NVIDIA's recipe draws them."""

import numpy as np
import yaml

from preproc.movielens.__main__ import main

ITEMS, TRAINED = 30, 25  # each user has all but 5 items, the last one held out


def test_prepared_data_set(tmp_path):
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(40):
        items = [(user + i) % ITEMS for i in range(TRAINED + 1)]
        lines += [f"{user},{item},3.5,{1000 + time}" for time, item in enumerate(items)]
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    flags = ["--input", str(tmp_path / "ratings.csv"), "--nvidia_negatives", "--seed", "1"]
    assert main([*flags, "--output", str(tmp_path / "out")]) == 0
    metadata = yaml.safe_load((tmp_path / "out/feature_spec.yaml").read_text())["metadata"]
    assert (metadata["seed"], metadata["test_samples_per_series"]) == (1, 101)
    users, items = (
        np.fromfile(tmp_path / f"out/test/{name}.bin", np.int32).reshape(40, -1)
        for name in ("user", "item")
    )
    np.testing.assert_array_equal(items[:, 0], (users[:, 0] + TRAINED) % ITEMS)
    # Only the items of train/ are left out, 25 of the 30.
    distances = (items[:, 1:] - users[:, 1:]) % ITEMS
    counts = np.bincount(distances.ravel(), minlength=ITEMS)
    assert not counts[:TRAINED].any(), "a negative is not in train/"
    np.testing.assert_allclose(counts[TRAINED:] / counts.sum(), 1 / 5, atol=0.03)
