"""`ncf.py --mode recommend` compared with a full sort of the scores of `--mode predict`."""

import csv
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import main as entry
import ncf
from dataloading.spec.feature_spec import FeatureSpec
from tests import tastes
from tests.interaction_data import write_interactions
from tests.recipes.test_entry_scripts import in_process, runner
from tests.recipes.test_validation import messages
from tests.vocabularies import write_encoder

FLAGS = (
    "--preset=terabyte",
    *("-b=240", "-f=8", "--layers=16,16,8", "-l=0.03", "-e=2", "-s=1", "--dropout=0.1"),
    *("-b1=0.9", "-b2=0.999", "-k=3", "--valid_batch_size=300"),
)
ITEMS, USERS = tastes.ITEMS, tastes.USERS


run = runner(ncf, "--data")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Interactions of 60 users, who are called u0, u7, u14, ..., and 40 items 1000, 999, ..."""
    folder = tmp_path_factory.mktemp("interactions") / "rows"
    tastes.write(folder)
    users = [f"u{7 * user}" for user in range(USERS)]
    write_encoder(folder, user=users, item=[1000 - item for item in range(ITEMS)])
    return folder


@pytest.fixture(scope="module", params=["neumf", "gmf"])
def model(request, rows, tmp_path_factory):
    """Returns the folder of a model and the scores of all pairs, float32 [users, items]."""
    folder = tmp_path_factory.mktemp(request.param)
    without = () if request.param == "neumf" else ("--layers", "--dropout")
    flags = [flag for flag in FLAGS if not flag.startswith(without)]
    flags.append(f"--model_type={request.param}")
    run(rows, folder / "train", *flags, f"--checkpoint_dir={folder / 'model'}")
    pairs = {"user": np.repeat(range(USERS), ITEMS), "item": np.tile(range(ITEMS), USERS)}
    write_interactions(folder / "pairs", USERS, ITEMS, {"test": pairs}).to_yaml(
        folder / "pairs/feature_spec.yaml"
    )
    path = folder / "scores.npy"
    flags = ("--mode=predict", f"--checkpoint_dir={folder / 'model'}")
    run(folder / "pairs", folder / "predict", *flags, f"--predictions_path={path}")
    return folder / "model", np.load(path).reshape(USERS, ITEMS)


def recommended(rows, folder, checkpoints, *flags, suffix="csv"):
    """Rows of the output, text columns user and item."""
    path = folder / f"top.{suffix}"
    common = ("--mode=recommend", f"--checkpoint_dir={checkpoints}", f"--predictions_path={path}")
    run(rows, folder / "run", *common, *flags)
    if suffix == "parquet":
        return pq.read_table(path).to_pylist()
    return list(csv.DictReader(path.open()))


def check(lines, scores, users, top, seen=()):
    """Compares with the full sort."""
    item_of = {1000 - item: item for item in range(ITEMS)}
    item_of |= {str(name): item for name, item in item_of.items()}
    for user in users:
        left = [item for item in range(ITEMS) if (user, item) not in seen]
        lines = check_lines(lines, f"u{7 * user}", scores[user], left, top, item_of)
    assert lines == []


def check_lines(lines, user, scores, left, top, item_of):
    """Compares a user's lines, the first ones, with a full sort; returns the others.

    Neighbours may change places within the rounding.

    Args:
        scores: of all items.
        left: items that may be recommended.
        item_of: number of each item.
    """
    best = sorted((float(scores[item]) for item in left), reverse=True)[:top]
    own = lines[: len(best)]
    assert [line["user"] for line in own] == [user] * len(best)
    assert [int(line["rank"]) for line in own] == list(range(1, 1 + len(best)))
    items = [item_of[line["item"]] for line in own]
    assert len(set(items)) == len(items) and set(items) <= set(left)
    np.testing.assert_allclose([float(line["score"]) for line in own], best, atol=1e-6)
    np.testing.assert_allclose(scores[items], best, atol=1e-6)
    return lines[len(best) :]


@pytest.mark.quick("neumf-parquet", "gmf-csv")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_all_users(rows, model, tmp_path, suffix):
    checkpoints, scores = model
    lines = recommended(rows, tmp_path, checkpoints, "--top=7", suffix=suffix)
    check(lines, scores, range(USERS), 7)
    if suffix == "parquet":
        assert isinstance(lines[0]["item"], int) and isinstance(lines[0]["user"], str)


def seen_pairs(rows):
    """Pairs of training rows and the positives of the test lists."""
    return pairs_of(rows, "train") | pairs_of(rows, "test")


def test_seen_items_and_too_few_left(rows, model, tmp_path, capsys):
    """All 40 items requested: of some, every user has seen at least the one of the test split."""
    checkpoints, scores = model
    capsys.readouterr()
    lines = recommended(rows, tmp_path, checkpoints, "--top=40", "--exclude_seen")
    check(lines, scores, range(USERS), 40, seen_pairs(rows))
    output = capsys.readouterr().out
    assert output.count("note: 60 users have fewer than 40 items left: all of them were") == 1
    assert re.search(r" users/s\b", output)


def pairs_of(rows, split):
    """Pairs of train, or the positives of the test lists."""
    users, items = (np.fromfile(rows / f"{split}/{n}_0.bin", "i4") for n in ("user", "item"))
    labels = np.ones(len(users), bool)
    if split == "test":
        labels = np.fromfile(rows / "test/label_0.bin", bool)
    return set(zip(users[labels].tolist(), items[labels].tolist(), strict=True))


def test_seen_items_of_train(rows, model, tmp_path):
    checkpoints, scores = model
    lines = recommended(rows, tmp_path, checkpoints, "--top=5", "--exclude_seen", "train")
    check(lines, scores, range(USERS), 5, pairs_of(rows, "train"))


def test_full_ranking(rows, model, tmp_path):
    """Metrics over all items, of scores without ties, and of popularity."""
    checkpoints, scores = model
    train, held_out = (pairs_of(rows, split) for split in ("train", "test"))
    counts = np.bincount(np.fromfile(rows / "train/item_0.bin", "i4"), minlength=ITEMS)
    flags = ("--mode=eval", f"--checkpoint_dir={checkpoints}", "--full_ranking", "--topk=5")
    summary = run(rows, tmp_path, *flags)
    lines = messages(tmp_path)
    assert re.search("^model   (neumf|gmf), eval on CPU in float32  users", lines[0], re.MULTILINE)
    (start,) = [line for line in lines if line.startswith("full_hr@5, full_ndcg@5, full_recall@5")]
    assert f" {USERS} users" in start
    values = []
    for user, item in sorted(held_out):
        others = [i for i in range(ITEMS) if (user, i) not in train and i != item]
        place = int((scores[user, others] > scores[user, item]).sum())
        values.append([place < 5, (place < 5) / np.log2(place + 2), place < 5])
        above = int((counts[others] > counts[item]).sum())
        ties = 1 + int((counts[others] == counts[item]).sum())
        chances = [(above + number < 5) / ties for number in range(ties)]
        gains = [chance / np.log2(above + i + 2) for i, chance in enumerate(chances)]
        values[-1] += [sum(chances), sum(gains), sum(chances)]
    names = [f"full_{name}@5" for name in ("hr", "ndcg", "recall")]
    names += [f"{name}_popularity" for name in names]
    for name, value in zip(names, np.mean(values, axis=0), strict=True):
        assert summary[name] == pytest.approx(value, abs=1e-12), name
    assert summary["hr@5"] > summary["hr@5_popularity"] > 0


@pytest.mark.quick("gmf")
def test_file_of_users(rows, model, tmp_path):
    checkpoints, scores = model
    path = tmp_path / "users.csv"
    path.write_text("plan,user\nfree,u21\npaid,u0\nfree,u413\n")
    lines = recommended(rows, tmp_path, checkpoints, f"--users={path}", "--top=3")
    check(lines, scores, [3, 0, 59], 3)
    start = messages(tmp_path / "run")[0].splitlines()
    assert f"data    {rows}" in start, "no trailing spaces"


@pytest.mark.quick("neumf")
def test_no_vocabulary(rows, model, tmp_path, capsys):
    spec = FeatureSpec.from_yaml(rows / "feature_spec.yaml")
    tastes.write(tmp_path / "rows")
    capsys.readouterr()
    lines = recommended(tmp_path / "rows", tmp_path, model[0], "--top=1")
    assert [line["user"] for line in lines] == [str(user) for user in range(USERS)]
    assert [int(line["item"]) for line in lines] == model[1].argmax(axis=1).tolist()
    notes = re.findall("note: the data set has no vocabulary of '(.*?)'", capsys.readouterr().out)
    assert notes == list(spec.channel("user") + spec.channel("item"))


@pytest.mark.quick("gmf")
def test_tied_items(rows, model, tmp_path, monkeypatch):
    """All logits are equal: the items with the lowest ids in the data set come first."""
    from nn.ncf.model import NCFModel

    original = NCFModel.pair_logits
    monkeypatch.setattr(NCFModel, "pair_logits", lambda *args: 0 * original(*args))
    seen = seen_pairs(rows)
    lines = recommended(rows, tmp_path, model[0], "--top=5", "--exclude_seen")
    for user in range(USERS):
        expected = [1000 - item for item in range(ITEMS) if (user, item) not in seen][:5]
        assert [int(line["item"]) for line in lines[5 * user : 5 * user + 5]] == expected
        assert {line["score"] for line in lines} == {"0.5"}


@pytest.mark.quick("neumf-*")
@pytest.mark.parametrize(
    ("users", "flags", "message"),
    [
        ("user\nu7\nu8\n", (), "--users .*: row 2: expected one of the 60 values of 'user'"),
        ("user\n", (), "--users .*: expected rows of a column 'user', got no row"),
        ("name\nu7\n", (), "--users .*: expected rows of a column 'user', got the columns name"),
        ("user\nu7\n", ("--top=0",), "--top: expected at least 1"),
        ('"', (), "--users .*: expected a .csv or .parquet file"),
        (None, (), "--users .*users.csv: the file does not exist"),
        ("user\nu7\n", ("--predictions_path=a.npy",), "ends with '.npy'"),
        ("user\nu7\n", ("--predictions_path=",), "--mode recommend needs a file"),
    ],
)
def test_mistakes(rows, model, tmp_path, capsys, users, flags, message):
    path = tmp_path / "users.csv"
    if users is not None:
        path.write_text(users)
    flags = (f"--users={path}", f"--predictions_path={tmp_path / 'a.csv'}", *flags)
    load = ("--mode=recommend", f"--checkpoint_dir={model[0]}")
    run(rows, tmp_path / "run", *load, *flags, code=entry.USER_ERROR)
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "a.csv").exists()
    flags = ("--mode=recommend", f"--dataset_path={tmp_path}", "--restore_checkpoint_path=m")
    assert in_process(tmp_path, *flags, "--predictions_path=a.csv")[0] == entry.USER_ERROR
    assert "--mode recommend ranks items of users" in capsys.readouterr().err
