"""Encoders in checkpoints, and checkpoints restored and resumed with data sets whose vocabularies
grew."""

import re
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.transcode import __main__ as transcode
from runtime import checkpoint
from runtime.checkpoint.reader import verify
from tests.recipes.test_entry_scripts import TINY, in_process
from tests.tables import arrays_of

HEADER = "bought,user,city,price\n"
LABELS = np.random.default_rng(0).integers(2, size=256)
ADAGRAD = ("--optimizer=adagrad", "--decay_steps=0", "--batch_size=64")


def orders(users, cities, rows=256):
    """Rows of a shop: users u0, u1, ... and cities of these numbers, all of which occur."""
    lines = (
        f"{LABELS[i]},u{users[i % len(users)]},c{cities[i % len(cities)]},{i % 11}\n"
        for i in range(rows)
    )
    return HEADER + "".join(lines)


def encode(folder, name, text, *flags):
    (folder / f"{name}.csv").write_text(text)
    output = folder / name
    flags = (f"--input={folder / f'{name}.csv'}", f"--output={output}", *flags)
    assert transcode.main([*map(str, flags)]) == 0
    return output


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Data sets of days 1 to 5, and of day 6, with and without evicted values; a model of the
    first."""
    folder = tmp_path_factory.mktemp("shop")
    first = orders(range(9), range(4))
    flags = ("--label=bought", "--split=0.6,0.4,0", "--frequency_threshold=0")
    first = encode(folder, "days", first, *flags, "--date=2026-11-05")
    grow = (f"--vocabulary={first}", "--grow", "--date=2026-11-06", "--allow_mostly_new")
    day = orders([7, 8, 20, 21, 22], [0, 1, 9], rows=64)
    encode(folder, "day6", day, *grow)
    encode(folder, "evicted", day, *grow, "--evict_after=1")
    flags = (f"--dataset_path={first}", *TINY, *ADAGRAD, f"--save_checkpoint_path={folder / 'm'}")
    assert in_process(folder / "run", *flags)[0] == 0
    return folder


def resumed(shop, name, folder, *flags):
    """Arrays of a training that resumes with other data, for one step."""
    flags = (f"--dataset_path={shop / name}", f"--resume={shop / 'm'}", *flags)
    flags += (f"--save_checkpoint_path={folder / 'm'}", "--evals_per_epoch=0")
    code, summary = in_process(folder / "run", *flags)
    assert code == 0
    return arrays_of(folder / "m"), summary


def users_of(data_set):
    return [None, *Encoder.load(data_set / "encoder")["user"].values.to_pylist()]


def scores(shop, folder, data):
    """Predictions for the rows of days 1 to 5 by the model of these days."""
    file = folder / f"{data.name}.parquet"
    flags = (f"--dataset_path={data}", f"--restore_checkpoint_path={shop / 'm'}", "--mode=predict")
    code, _ = in_process(folder / "run", *flags, f"--predictions_path={file}")
    assert code == 0
    return pyarrow.parquet.read_table(file)["score"].to_numpy()


def test_content_of_a_checkpoint(shop):
    path = checkpoint.resolve(shop / "m")
    description, files = checkpoint.describe(path).description, checkpoint.describe(path).files
    encoder = Encoder.load(path / "encoder")
    assert encoder.digest == Encoder.load(shop / "days/encoder").digest == description["encoder"]
    assert "encoder/vocabulary/city.parquet" in files and "feature_spec.yaml" in files
    spec = FeatureSpec.from_yaml(path / "feature_spec.yaml")
    assert spec.fingerprint() == description["feature_spec"]
    assert {fault for _, fault in verify(path)} == {None}


def test_data_without_encoder_and_with_another(shop, tmp_path, capsys):
    shutil.copytree(shop / "days", tmp_path / "data")
    shutil.rmtree(tmp_path / "data/encoder")
    flags = (f"--dataset_path={tmp_path / 'data'}", *TINY, *ADAGRAD, "--evals_per_epoch=0")
    flags += (f"--save_checkpoint_path={tmp_path / 'm'}", "--max_steps=1")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    index = checkpoint.describe(checkpoint.resolve(tmp_path / "m"))
    assert list(index.files) == ["feature_spec.yaml"] and index.description["encoder"] is None
    shutil.copytree(shop / "day6/encoder", tmp_path / "data/encoder")
    assert in_process(tmp_path / "run", *flags)[0] == 2
    assert "data/encoder: expected the encoder with the digest" in capsys.readouterr().err


def test_scores_of_old_ids(shop, tmp_path, capsys):
    """Bit for bit those before the growth, from the checkpoint of the smaller tables."""
    again = orders(range(9), range(4))
    expected = scores(shop, tmp_path, encode(tmp_path, "old", again, f"--vocabulary={shop}/days"))
    grown = encode(tmp_path, "new", again, f"--vocabulary={shop}/day6")
    capsys.readouterr()
    np.testing.assert_array_equal(scores(shop, tmp_path, grown), expected)
    assert "note: new rows of tables: user 3 of 13, city 1 of 6" in capsys.readouterr().out


def test_ids_of_other_values(tmp_path, capsys):
    """Equal cardinalities do not make ids equal: those of days whose values were evicted differ."""
    flags = ("--label=bought", "--split=0.6,0.4,0", "--frequency_threshold=0")
    days = [encode(tmp_path, "day1", orders(range(4), range(3)), *flags, "--date=2026-11-01")]
    for number in (2, 3):
        users = orders([10 * number + i for i in range(4)], range(3))
        grow = (f"--vocabulary={days[-1]}", "--grow", f"--date=2026-11-0{number}")
        grow += ("--split=0.6,0.4,0", "--evict_after=1", "--allow_mostly_new")
        days.append(encode(tmp_path, f"day{number}", users, *grow))
    flags = (f"--dataset_path={days[0]}", *TINY, *ADAGRAD, f"--save_checkpoint_path={tmp_path}/m")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    capsys.readouterr()
    for data, is_refused in ((days[1], False), (days[2], True)):
        flags = (f"--dataset_path={data}", f"--restore_checkpoint_path={tmp_path}/m")
        flags += ("--mode=eval", "--eval_mapping=validation")
        code, _ = in_process(tmp_path / "run", *flags)
        assert code == 2 * is_refused
        message = f"of its training, {days[0]}, or one"
        message_of_got = f"continues its ids, got {days[2]}, whose ids are other values"
        printed = "".join(capsys.readouterr())
        assert (message in printed) == (message_of_got in printed) == is_refused


def test_numbers_of_other_scales(tmp_path, capsys):
    """Data without vocabularies has no ids to compare: another encoder is noted."""

    def prices(factor):
        rows = (f"{LABELS[i]},{factor * (i % 11) + i / 1000}\n" for i in range(256))
        return "bought,price\n" + "".join(rows)

    flags = ("--label=bought", "--split=0.6,0.4,0", "--numerical=price")
    own = encode(tmp_path, "own", prices(1), *flags)
    saved = f"--save_checkpoint_path={tmp_path / 'm'}"
    assert in_process(tmp_path / "run", f"--dataset_path={own}", *TINY, saved)[0] == 0
    other = encode(tmp_path, "other", prices(10), *flags)
    alike = encode(tmp_path, "alike", prices(10), f"--vocabulary={own}", "--split=0.6,0.4,0")
    for data, is_noted in ((other, True), (alike, False)):
        capsys.readouterr()
        flags = ("--mode=eval", "--eval_mapping=validation")
        restore = f"--restore_checkpoint_path={tmp_path / 'm'}"
        assert in_process(tmp_path / "eval", f"--dataset_path={data}", restore, *flags)[0] == 0
        output = capsys.readouterr().out
        assert ("numbers have other scales" in output) == is_noted
        assert "validation (step" not in output  # of other samples


@pytest.mark.parametrize("name", ["day6", "evicted"])
def test_first_step_on_grown_tables(shop, tmp_path, capsys, name):
    """Old and new rows of the batch move; the others are the checkpoint's, or as initialized."""
    before = arrays_of(shop / "m")
    after, summary = resumed(shop, name, tmp_path)
    assert summary["steps"] == 3 + 1
    assert users_of(checkpoint.resolve(tmp_path / "m")) == users_of(shop / name)
    output = capsys.readouterr().out
    first, users = users_of(shop / "days"), users_of(shop / name)
    kept = np.array([first.index(user) for user in users if user in first])
    assert len(kept) == (10 if name == "day6" else 3)
    evicted = " (7 evicted)" if name == "evicted" else ""
    assert f"note: new rows of tables: user 3 of {len(kept) + 3}{evicted}, city 1 of" in output
    assert "at step 3 of 4" in output and "training starts at its first sample" in output
    table, former = after["sparse/user"], before["sparse/user"][kept]
    state, former_state = (a["sparse.accumulator/user"] for a in (after, before))
    used = [users.index(user) for user in ("u7", "u8", "u20", "u21", "u22")]
    unused = np.setdiff1d(np.arange(len(kept)), used)
    assert len(unused) and len(table) == len(kept) + 3
    np.testing.assert_array_equal(table[unused], former[unused])
    np.testing.assert_array_equal(state[unused], former_state[kept][unused])
    old = used[:2]
    assert (table[old] != former[old]).any(axis=1).all()
    assert (state[old] > former_state[kept][old]).any(axis=1).all()
    assert (state[-3:] > 0).any(axis=1).all() and (table[-3:] != 0).any(axis=1).all()


def test_second_start_on_grown_data(shop, tmp_path):
    """A training that was cut on the new data resumes there; its steps continue."""
    whole, _ = resumed(shop, "day6", tmp_path / "whole", "--epochs=3")
    _, summary = resumed(shop, "day6", tmp_path / "cut", "--epochs=3", "--max_steps=1")
    assert summary["steps"] == 4
    flags = (f"--resume={tmp_path / 'cut/m'}", "--max_steps=-1")
    code, summary = in_process(tmp_path / "run", *flags)
    assert code == 0 and summary["steps"] == 6
    for name, array in arrays_of(tmp_path / "cut/m").items():
        np.testing.assert_array_equal(array, whole[name], err_msg=name)


def test_start_on_grown_data(shop, tmp_path, capsys):
    """A training that kept the best weights continues with those, which are evaluated on the new
    data and may stay the best."""
    flags = (f"--dataset_path={shop / 'days'}", *TINY, *ADAGRAD, "--keep_best", "--epochs=6")
    saved = f"--save_checkpoint_path={tmp_path / 'm'}"
    code, summary = in_process(tmp_path / "run", *flags, saved, "--learning_rate=3")
    best = re.search(r"best validation \w+ \S+ at step (\d+): checkpoint", capsys.readouterr().out)
    assert code == 0 and int(best[1]) < summary["steps"] == 18
    expected = arrays_of(tmp_path / "m/best")
    grown = tmp_path / "grown"
    text, grow = orders([7, 8, 20, 21, 22], [0, 1, 9]), (f"--vocabulary={shop / 'days'}", "--grow")
    split = ("--split=0.6,0.4,0", "--date=2026-11-06", "--allow_mostly_new")
    encode(tmp_path, "grown", text, *grow, *split)
    flags = (f"--dataset_path={grown}", "--resume=auto", "--epochs=1")
    code, summary = in_process(tmp_path / "run2", *flags, saved, "--learning_rate=100")
    output = capsys.readouterr().out
    assert code == 0 and f"at step {best[1]} of" in output
    start, _ = re.findall(r"step (\d+)/\d+  validation auc", output)
    assert start == best[1]
    assert f"auc {summary['best_auc']:.5f} at step {start}: checkpoint" in output
    assert summary["auc"] < summary["best_auc"]
    kept = arrays_of(tmp_path / "m/best")
    for name, array in expected.items():
        np.testing.assert_array_equal(kept[name][: len(array)], array, err_msg=name)


def test_refused_tables(shop, tmp_path, capsys):
    """Tables that shrank, rows that moved in an unknown way, and data of another training."""
    grown = tmp_path / "grown"
    resumed(shop, "day6", grown)
    restore = f"--restore_checkpoint_path={grown / 'm'}"
    shrunk = r"sparse/user is float32 \[13, 4\], the model needs float32 \[10, 4\]: a training rest"
    for name, message in {"days": shrunk, "evicted": "whose ids are other values"}.items():
        flags = (f"--dataset_path={shop / name}", restore, *TINY, "--evals_per_epoch=0")
        code, _ = in_process(tmp_path / "run", *flags)
        assert code == 2
        assert re.search(message, capsys.readouterr().err)
    resume = f"--resume={grown / 'm'}"
    assert in_process(tmp_path / "run", f"--dataset_path={shop / 'days'}", resume)[0] == 2
    assert "a training resumes with more data that" in capsys.readouterr().err
    assert checkpoint.describe(checkpoint.resolve(grown / "m")).state["first_step"] == 3


def test_initial_values_of_new_rows(shop, tmp_path):
    """New rows start as in a new training with this data and seed."""
    new, _ = resumed(shop, "evicted", tmp_path, "--learning_rate=0")
    flags = (f"--dataset_path={shop / 'evicted'}", *TINY, *ADAGRAD, "--evals_per_epoch=0")
    flags += ("--learning_rate=0", f"--save_checkpoint_path={tmp_path / 'new'}")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    expected = arrays_of(tmp_path / "new")
    np.testing.assert_array_equal(new["sparse/user"][3:], expected["sparse/user"][3:])
    assert (new["sparse/user"][:3] != expected["sparse/user"][:3]).any(axis=1).all()
