"""Input and output folders of a scoring on Spark; no Spark here."""

import pytest

from deployment.predict.spark_folders import Entry, check_apart, check_replaceable, escaped


@pytest.mark.parametrize("output", ["hdfs://a/rows.csv", "hdfs://a/rows.csv/part.csv", "hdfs://a/"])
def test_shared_folders(output):
    with pytest.raises(ValueError, match="lies in hdfs://a/rows.csv, which is read; choose a"):
        check_apart(output, ["hdfs://b/other.csv", "hdfs://a/rows.csv"])


@pytest.mark.parametrize(
    "output", ["hdfs://b/rows.csv", "s3a://a/rows.csv", "hdfs://a/rows.csv2", "hdfs://a/row"]
)
def test_separate_folders(output):
    check_apart(output, ["hdfs://a/rows.csv"])


def test_links(tmp_path):
    (tmp_path / "rows#1.csv").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "rows#1.csv")
    with pytest.raises(ValueError, match="expected a folder apart from --input"):
        check_apart(f"file:{tmp_path}/link/scores.csv", [f"file://{tmp_path}/rows#1.csv"])


def entries(*names):
    return [Entry(name.rstrip("/"), name.endswith("/")) for name in names]


EARLIER = entries("part-0.csv", "_SUCCESS", "._SUCCESS.crc", "_temporary/", ".part-0.csv.crc")


def test_replaceable_folders():
    check_replaceable("out", False, [], overwrite=False)
    check_replaceable("out", False, EARLIER, overwrite=True)
    with pytest.raises(ValueError, match="--output out: .*; replace it with --overwrite, or"):
        check_replaceable("out", False, EARLIER, overwrite=False)


@pytest.mark.parametrize("name", ["rows.csv", "data/", "part-0/", ".git/", "_SUCCESS2"])
def test_other_folders(name):
    with pytest.raises(ValueError, match=f"holds {name.rstrip('/')}, which --overwrite does not"):
        check_replaceable("out", False, [*EARLIER, *entries(name)], overwrite=True)


def test_file():
    with pytest.raises(ValueError, match="expected a folder, got a file, which --overwrite does"):
        check_replaceable("out", True, [], overwrite=True)


def test_escaped_pattern():
    assert escaped("a[1]*.csv") == "a\\[1\\]\\*.csv"
