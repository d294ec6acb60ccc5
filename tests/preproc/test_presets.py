"""Preparations of any log, and their presets."""

import filecmp

from preproc.amazon_books.__main__ import main as amazon_books
from preproc.histories.__main__ import main as histories
from preproc.interactions.__main__ import main as interactions
from preproc.movielens.__main__ import main as movielens


def write_log(path, header):
    rows = [f"{u},{(u * n) % 11},{n}" for u in range(1, 6) for n in range(1, 8)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_movielens_is_a_preset(tmp_path):
    flags = ["--min_ratings=3", "--valid_negative=2", "--input"]
    ratings = write_log(tmp_path / "ratings.csv", "userId,movieId,timestamp")
    assert movielens([*flags, ratings, f"--output={tmp_path / 'a'}"]) == 0
    columns = ["--user_column=userId", "--item_column=movieId", "--timestamp_column=timestamp"]
    assert interactions([*flags, ratings, *columns, f"--output={tmp_path / 'b'}"]) == 0
    files = ["train/user.bin", "test/item.bin", "feature_spec.yaml", "encoder/encoder.json"]
    assert filecmp.cmpfiles(tmp_path / "a", tmp_path / "b", files, False)[0] == files


def test_amazon_books_is_a_preset(tmp_path, capsys):
    log = write_log(tmp_path / "log.csv", "user_id,item_id,time")
    flags = ["--interactions", log, "--min_events=3"]
    assert histories([*flags, f"--output={tmp_path / 'a'}"]) == 0
    assert amazon_books([*flags, f"--output={tmp_path / 'b'}", "--input_format=csv"]) == 0
    files = ["feature_spec.yaml"]
    assert filecmp.cmpfiles(tmp_path / "a", tmp_path / "b", files, False)[0] == files
    capsys.readouterr()
    assert amazon_books([f"--output={tmp_path / 'c'}"]) == 2
    assert "--amazon_dataset_path is missing" in capsys.readouterr().err
