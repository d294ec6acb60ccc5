"""Formats of Amazon's files; --min_rating; tables of items that do not match; --strict."""

import json

import pytest

from dataloading.spec.data_checks import WARNING, read_findings
from dataloading.spec.feature_spec import FeatureSpec
from preproc.amazon_books.__main__ import main
from preproc.encoding.encoder import Encoder
from preproc.histories.prepare import prepare
from tests.preproc.amazon_books.amazon_reference import parse

YEARS = ("2014", "2018", "2023")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def raw_folder(folder, reviews, metadata=None):
    """Writes five reviews of each of two users, of items a to e rated 1 to 5, and metadata.

    Args:
        reviews, metadata: the year of each.
    """
    folder.mkdir()
    user, item, time, rating = ("reviewerID", "asin", "unixReviewTime", "overall")
    if reviews == "2023":
        user, item, time, rating = ("user_id", "parent_asin", "timestamp", "rating")
    write_lines(
        folder / "reviews_B.json",
        [{user: u, item: i, time: 1000 * k, rating: float(k), "x": 1}
         for u in "uv" for k, i in enumerate("abcde", 1)],
    )  # fmt: skip
    metadata = metadata or reviews
    key = "parent_asin" if metadata == "2023" else "asin"
    names = {i: ["Books", "odd" if i in "ace" else "even"] for i in "abcde"}
    field = "category" if metadata == "2018" else "categories"
    lists = {i: [own] if metadata == "2014" else own for i, own in names.items()}
    write_lines(folder / "meta_B.json", [{key: i, field: own} for i, own in lists.items()])
    return folder


def prepared(folder, *flags):
    output = folder / "out"
    prepare(parse(["--output", str(output), "--engine", "duckdb", *map(str, flags)]))
    return output


@pytest.mark.parametrize("year", YEARS)
def test_years(tmp_path, year, capsys):
    """Ratings, and two categories; raw rows have the columns of the year."""
    raw = raw_folder(tmp_path / "raw", year)
    (raw / "reviews_C.json").touch()  # has no year
    output = prepared(tmp_path, "--input", raw, "--min_events", 3, "--min_rating", "2.5")
    assert "left out 4 events below --min_rating 2.5" in capsys.readouterr().err
    spec = FeatureSpec.from_yaml(output / "feature_spec.yaml")
    assert spec.metadata["min_rating"] == 2.5
    assert spec.cardinality("cat_id_trgt") == 3
    encoder = Encoder.load(output / "encoder")
    assert encoder["item_id_trgt"].values.to_pylist() == ["c", "d", "e"]
    columns = {feature.column for feature in encoder.features}
    assert columns == ({"user_id", "parent_asin"} if year == "2023" else {"reviewerID", "asin"})


def test_mixed_years(tmp_path):
    raw = raw_folder(tmp_path / "raw", "2014", "2023")
    with pytest.raises(ValueError, match="meta_B.json: expected .* key asin.* got .*parent_asin"):
        prepared(tmp_path, "--input", raw)
    other = raw_folder(tmp_path / "other", "2023")
    files = [raw / "reviews_B.json", other / "reviews_B.json"]
    with pytest.raises(ValueError, match="one format, got .* of 2014 or 2018 and .* of 2023"):
        prepared(tmp_path, "--reviews", *files, "--no_metadata")


def test_unknown_keys(tmp_path):
    raw = raw_folder(tmp_path / "raw", "2014")
    write_lines(raw / "reviews_B.json", [{"user": "u", "asin": "a", "time": 1}])
    with pytest.raises(ValueError, match=r"expected .*\(2023\), got asin, time, user; .*tables"):
        prepared(tmp_path, "--input", raw)


def test_no_category(tmp_path):
    raw = raw_folder(tmp_path / "raw", "2014")
    write_lines(raw / "meta_B.json", [{"asin": "a", "title": "x"}])
    with pytest.raises(ValueError, match=r"no item has a category.*keys asin, title.*no_metadata"):
        prepared(tmp_path, "--input", raw)
    files = ["--reviews", raw / "reviews_B.json", "--no_metadata"]
    assert not read_findings(prepared(tmp_path, *files, "--min_events", 4))


def table_files(folder, items):
    """Writes a log of items 0 to 9 with a rating of 0 to 9, and a table of items."""
    rows = [f"{u},{i},{i},{i}" for u in range(3) for i in range(10)]
    (folder / "log.csv").write_text("\n".join(["user_id,item_id,time,stars", *rows]) + "\n")
    rows = [f"{i},{i[-1]}" for i in items]
    (folder / "items.csv").write_text("\n".join(["item_id,kind", *rows]) + "\n")
    flags = ["--input_format", "tables", "--interactions", folder / "log.csv", "--min_events", 3]
    return [*flags, "--items", folder / "items.csv", "--item_features", "kind"]


def test_joined_items(tmp_path, capsys):
    """Ids with leading zeros match nothing; four of ten are a warning, five are not."""
    flags = table_files(tmp_path, [f"00{i}" for i in range(10)])
    message = (
        "none of the 10 items of the log are in .*items.csv; only the log has '0', '1', '2'; only "
        "the table has '000', '001', '002'; write"
    )
    with pytest.raises(ValueError, match=message):
        prepared(tmp_path, *flags)
    flags = table_files(tmp_path, ["0", "1", "2", "3", "77"])
    (finding,) = read_findings(prepared(tmp_path, *flags))
    assert (finding.check, finding.level) == ("joined_tables", WARNING)
    assert finding.seen.startswith("4 of the 10 items") and finding.seen.endswith("has 77")
    strict = [*map(str, flags), "--output", str(tmp_path / "strict"), "--strict"]
    assert main([*strict, "--engine", "duckdb"])
    assert "--strict: 1 checks warn" in capsys.readouterr().err
    assert not (tmp_path / "strict").exists()


def test_ratings_of_tables(tmp_path):
    flags = table_files(tmp_path, map(str, range(10)))
    with pytest.raises(ValueError, match="no column 'rating'.*--rating_column"):
        prepared(tmp_path, *flags, "--min_rating", 4)
    flags += ["--rating_column", "stars"]
    with pytest.raises(ValueError, match="rating_column is only read with --min_rating"):
        prepared(tmp_path, *flags)
    with pytest.raises(ValueError, match="--min_rating 10: all 30 ratings are below"):
        prepared(tmp_path, *flags, "--min_rating", 10)
    output = prepared(tmp_path, *flags, "--min_rating", 4)
    items = Encoder.load(output / "encoder")["item_id_trgt"].values.to_pylist()
    assert items == ["4", "5", "6", "7", "8", "9"]
