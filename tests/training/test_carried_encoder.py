"""Checkpoints of trainings carry the feature spec and the encoder of the data set."""

import shutil

import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.transcode import __main__ as transcode
from runtime.checkpoint import Folder, describe
from runtime.checkpoint.reader import verify
from tests.recipes.test_entry_scripts import TINY, in_process

HEADER = "bought,city,price\n"
ADAGRAD = ("--optimizer=adagrad", "--decay_steps=0", "--batch_size=64")


def encode(folder, name, cities, *flags, rows=256):
    lines = (f"{i * 7 % 3 % 2},c{cities[i % len(cities)]},{i % 11}\n" for i in range(rows))
    (folder / f"{name}.csv").write_text(HEADER + "".join(lines))
    flags = (f"--input={folder / f'{name}.csv'}", f"--output={folder / name}", *flags)
    assert transcode.main([*map(str, flags)]) == 0
    return folder / name


def train(folder, data, *flags):
    """Returns the exit code, and the newest checkpoint."""
    flags = (f"--dataset_path={data}", *TINY, *ADAGRAD, *flags)
    code, _ = in_process(folder / "run", *flags, f"--save_checkpoint_path={folder / 'm'}")
    newest = Folder(folder / "m").newest()
    return code, newest and newest.path


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    flags = ("--label=bought", "--split=0.6,0.4,0", "--frequency_threshold=0")
    return encode(folder, "days", range(4), *flags)


@pytest.fixture(scope="module")
def checkpoint(shop):
    code, path = train(shop.parent, shop)
    assert code == 0
    return path


def test_content(shop, checkpoint):
    description, files = describe(checkpoint).description, describe(checkpoint).files
    encoder = Encoder.load(checkpoint / "encoder")
    assert encoder.digest == Encoder.load(shop / "encoder").digest == description["encoder"]
    assert "encoder/vocabulary/city.parquet" in files and "feature_spec.yaml" in files
    spec = FeatureSpec.from_yaml(checkpoint / "feature_spec.yaml")
    assert spec.fingerprint() == description["feature_spec"]
    assert {fault for _, fault in verify(checkpoint)} == {None}


def test_grown_data(shop, checkpoint, tmp_path):
    """A training that resumes with grown data carries their encoder."""
    day = encode(tmp_path, "day", [0, 9], f"--vocabulary={shop}", "--grow", rows=64)
    code, path = train(tmp_path, day, f"--resume={checkpoint.parent}", "--evals_per_epoch=0")
    assert code == 0
    before, now = (Encoder.load(p / "encoder")["city"].values for p in (checkpoint, path))
    assert now.to_pylist() == [*before.to_pylist(), "c9"] and len(before) == 4


def test_data_without_encoder(tmp_path, shop):
    """A checkpoint without an encoder, as before."""
    shutil.copytree(shop, tmp_path / "data")
    shutil.rmtree(tmp_path / "data/encoder")
    code, path = train(tmp_path, tmp_path / "data", "--max_steps=1", "--evals_per_epoch=0")
    assert code == 0
    assert list(describe(path).files) == ["feature_spec.yaml"]
    assert describe(path).description["encoder"] is None


def test_encoder_of_other_data(tmp_path, shop, capsys):
    shutil.copytree(shop, tmp_path / "data")
    shutil.rmtree(tmp_path / "data/encoder")
    other = encode(tmp_path, "other", range(5), "--label=bought", "--split=0.6,0.4,0")
    shutil.copytree(other / "encoder", tmp_path / "data/encoder")
    code, path = train(tmp_path, tmp_path / "data")
    assert (code, path) == (2, None)
    assert "data/encoder: expected the encoder with the digest" in capsys.readouterr().err
