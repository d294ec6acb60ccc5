"""--frequency_threshold auto, and the warning of ids that training does not have."""

import numpy as np
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from dataloading.transcode.encode.texts import automatic_threshold, is_far_above
from tests.dataloading.transcode.test_transcode import SPEC, changed, raw, run, stored


@pytest.mark.parametrize(
    ("values", "single", "expected"),
    [
        (10, 0, 2),
        (10, 10, 2),  # few values: no more than once is too rare
        (999, 500, 2),
        (2500, 250, 5),
        (2500, 249, 2),  # new values are rare
        (5000, 500, 10),
        (10**9, 10**8, 10),
        (10**9, 0, 2),
    ],
)
def test_thresholds_by_hand(values, single, expected):
    assert automatic_threshold(values, single) == expected


@pytest.mark.parametrize(
    ("share", "trained", "expected"),
    [
        (0.0, 0.0, False),
        (0.009, 0.0, False),
        (0.01, 0.0, True),
        (0.3, 0.2, False),
        (0.5, 0.2, True),
    ],
)
def test_shares_far_above(share, trained, expected):
    assert is_far_above(share, trained) is expected


def click_log(folder, train, test):
    """A data set of which only the city matters."""
    chunk = SPEC["source_spec"]["train"][0]
    spec = changed(source_spec={"train": [chunk], "test": [{**chunk, "files": ["b"]}]})
    files = {"a": train, "b": test}
    text = {k: "".join(f"{i % 2},1,1,1,{c}\n" for i, c in enumerate(v)) for k, v in files.items()}
    return raw(folder, spec, **text)


def test_id_0_of_single_values(tmp_path, capsys):
    folder = click_log(tmp_path, ["Bern", "Oslo", "Bern", "Rome", "Oslo"], ["Paris", "Rome"])
    assert run(folder, "--categorify=city") == 0
    assert stored(tmp_path / "out", "city") == [1, 2, 1, 0, 2]
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert spec.metadata["transcode"]["frequency_threshold"] == {"city": 2}
    output = capsys.readouterr().out
    assert "city: cardinality 3, vocabulary of values seen 2 times or more; id 0" in output
    flags = ("--categorify=city", "--frequency_threshold=auto")
    assert run(folder, *flags, output=tmp_path / "c") == 0
    assert stored(tmp_path / "c", "city") == [1, 2, 1, 0, 2]


def test_shares_of_single_and_new_values(tmp_path):
    """Good and Turing's estimate, on a power law: id 0 is as frequent in train as in test."""
    rng = np.random.default_rng(0)
    train, test = (rng.zipf(1.5, 4000) for _ in range(2))
    assert run(click_log(tmp_path, train, test), "--categorify=city") == 0
    shares = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").metadata["transcode"]
    shares = {name: share["city"] for name, share in shares["unknown_share"].items()}
    assert shares["train"] > 0.03
    assert shares["test"] < 2 * shares["train"]


def test_warning_about_a_frequent_value_absent_from_train(tmp_path, capsys):
    folder = click_log(tmp_path / "a", ["Bern", "Oslo"] * 20, ["Paris"] * 3 + ["Bern"] * 7)
    assert run(folder, "--categorify=city") == 0
    output = capsys.readouterr().out
    assert "warning: 'city': 30.00% of the values of test have id 0, but only 0.00%" in output
    assert "'Paris' (30.00%)" in output
    known = click_log(tmp_path / "b", ["Bern", "Oslo"] * 20, ["Bern"] * 9)
    assert run(known, "--categorify=city") == 0
    assert "warning:" not in capsys.readouterr().out
    # Later rows are compared with the training rows of the data set that they are encoded as.
    spec = changed()
    spec["source_spec"] = {"test": spec["source_spec"]["train"]}
    later = raw(tmp_path / "c", spec, a="1,1,1,1,Lima\n0,1,1,1,\n")
    assert run(later, f"--vocabulary={known / 'out'}") == 0
    assert "100.00% of the values of test have id 0" in capsys.readouterr().out


def test_solutions_for_a_growing_vocabulary(tmp_path, capsys):
    """--vocabulary refuses the flags, so a data set without it is proposed."""
    known = click_log(tmp_path / "a", ["Bern", "Oslo"] * 20, ["Paris"])
    assert run(known, "--categorify=city") == 0
    solutions = "possible solutions: {}a larger --frequency_threshold"
    assert solutions.format("") in capsys.readouterr().out
    more = click_log(tmp_path / "b", ["Bern", "Oslo"] * 20, ["Paris"])
    assert run(more, f"--vocabulary={known / 'out'}", "--grow") == 0
    assert solutions.format("without --vocabulary: ") in capsys.readouterr().out


def test_only_missing_values(tmp_path, capsys):
    folder = click_log(tmp_path, ["Bern", "Oslo"] * 20, ["", "Bern"])
    assert run(folder, "--categorify=city") == 0
    assert "50.00% of the values of test have id 0, but only 0.00% of train" in (
        output := capsys.readouterr().out
    )
    assert "all of them are missing" in output
