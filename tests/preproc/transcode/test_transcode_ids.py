"""Thresholds of ids, --hash_buckets, and the warning of ids that training does not have."""

import pytest

from dataloading.spec.data_checks import read_findings
from dataloading.spec.feature_spec import FeatureSpec
from preproc.checks.unknown_values import is_far_above
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.encoding.encoder import Encoder
from preproc.fitting.fit import automatic_threshold
from tests.preproc.transcode.test_transcode import SPEC, changed, raw, run, stored


@pytest.mark.parametrize(
    ("values", "single", "expected"),
    [
        (10, 10, 2),  # few values: no more than once is too rare
        (999, 500, 2),
        (2500, 250, 5),
        (2500, 249, 2),  # new values are rare
        (10**9, 10**8, 10),
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
    assert run(folder, "--categorify=city", "--frequency_threshold=auto") == 0
    assert stored(tmp_path / "out", "city") == [1, 2, 1, 0, 2]
    encoder = Encoder.load(tmp_path / "out/encoder")
    assert encoder["city"].threshold == 2
    assert encoder.profile["city"].unknown == 0.2
    assert "  3 ids (2+)\n" in capsys.readouterr().out
    flags = ("--categorify=city", "--frequency_threshold=3")
    assert run(folder, *flags, output=tmp_path / "rare") == 0
    output = capsys.readouterr().out
    assert "(3+)\n" in output and "(n+): ids of the values that train has n times" in output


def test_warning_about_a_frequent_value_absent_from_train(tmp_path, capsys):
    folder = click_log(tmp_path / "a", ["Bern", "Oslo"] * 20, ["Paris"] * 3 + ["Bern"] * 7)
    assert run(folder, "--categorify=city") == 0
    output = capsys.readouterr().out
    text = "'city': 30.00% of the values of test have id 0, but only 0.00% of train"
    assert f"warning: {text}" in output
    assert "the most frequent value without an id is 'Paris'" in output
    assert "possible solutions: a larger --frequency_threshold" in output
    (finding,) = read_findings(folder / "out")
    assert (finding.check, finding.columns) == ("unknown_values", ("city",))
    assert finding.seen.startswith(text)
    # Later rows are compared with the training rows of the data set that they are encoded as.
    spec = changed()
    spec["source_spec"] = {"test": spec["source_spec"]["train"]}
    later = raw(tmp_path / "b", spec, a="1,1,1,1,Lima\n0,1,1,1,\n")
    assert run(later, f"--vocabulary={folder / 'out'}") == 0
    assert "100.00% of the values of test have id 0" in capsys.readouterr().out
    # --grow takes no --frequency_threshold, so a data set without --vocabulary is proposed.
    more = click_log(tmp_path / "c", ["Bern", "Oslo"] * 20, ["Paris"])
    assert run(more, f"--vocabulary={folder / 'out'}", "--grow") == 0
    solution = "possible solutions: without --vocabulary: a larger --frequency_threshold"
    assert solution in capsys.readouterr().out


def test_no_warning_and_only_missing_values(tmp_path, capsys):
    assert run(click_log(tmp_path / "b", ["Bern", "Oslo"] * 9, ["Bern"]), "--categorify=city") == 0
    assert "warning:" not in capsys.readouterr().out
    folder = click_log(tmp_path / "a", ["Bern", "Oslo"] * 20, ["", "Bern", "NA", "Oslo"] * 9)
    assert run(folder, "--categorify=city") == 0
    output = capsys.readouterr().out
    assert "50.00% of the values of test have id 0, but only 0.00% of train" in output
    assert "all of them are missing" in output


def test_spellings_of_missing_values(tmp_path):
    cities = ["NA", "none", "-", "NA", "none", "NULL"]
    folder = click_log(tmp_path, cities, ["-"])
    assert run(folder, "--categorify=city", "--frequency_threshold=0") == 0
    assert stored(folder / "out", "city") == [0, 1, 0, 0, 1, 0]
    flags = ("--categorify=city", "--frequency_threshold=0", "--missing_values==none,-")
    assert run(folder, *flags, output=tmp_path / "own") == 0
    assert stored(tmp_path / "own", "city") == [1, 0, 0, 1, 0, 2]
    assert Encoder.load(tmp_path / "own/encoder").missing_values == ("", "none", "-")
    flags = (*flags[:-1], "--missing_values=none,-")
    assert run(folder, *flags, output=tmp_path / "more") == 0
    assert stored(tmp_path / "more", "city") == [0] * 6
    assert Encoder.load(tmp_path / "more/encoder").missing_values == (*MISSING_VALUES, "none")


def test_lists_of_different_lengths(tmp_path, capsys):
    """Short lists are padded with id 0, long ones are truncated and counted."""
    spec = changed(feature_spec={"city": {"hotness": 2}})
    rows = ["Bern;Oslo", "Bern", "", '["Oslo", "Bern"]', "Oslo;Bern;Rome"]
    quoted = [row.replace('"', '""') for row in rows]
    folder = raw(
        tmp_path, spec, a="".join(f'{i % 2},2,3,4,"{row}"\n' for i, row in enumerate(quoted))
    )
    assert run(folder, "--categorify=city", "--frequency_threshold=2") == 0
    assert stored(folder / "out", "city") == [[1, 2], [1, 0], [0, 0], [2, 1], [2, 1]]
    spec = FeatureSpec.from_yaml(folder / "out/feature_spec.yaml")
    assert spec.metadata["transcode"]["long_lists"] == {"city": 1}
    assert "city: 1 lists are longer" in capsys.readouterr().out
