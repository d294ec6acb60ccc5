"""NCF and SIM of a server, asked by original ids; compared with the trained model."""

import csv
import json
import re
import urllib.request

import numpy as np
import pytest

from dataloading.histories.dataset import blocks
from dataloading.spec.feature_spec import FeatureSpec
from deployment.client import __main__ as client
from deployment.serve.server import running
from deployment.serve.serving_environment import ENVIRONMENT
from preproc.encoding.encoder import Encoder
from tests.serving.test_json import asked

TOP = 5


@pytest.fixture(scope="module")
def models(request):
    """Trained models by name."""
    if not (ENVIRONMENT / "installed").exists():
        pytest.skip("there is no serving environment: run `make serve-setup`")
    return {
        "ncf": request.getfixturevalue("ncf_of_ratings"),
        "sim": request.getfixturevalue("sim_of_events"),
    }


@pytest.fixture(scope="module")
def originals(models, tmp_path_factory):
    """A server with a model of each, and one that recommends (`_top`)."""
    repository = tmp_path_factory.mktemp("repository")
    for name, model in models.items():
        for own in ([f"--model_name={name}"], [f"--model_name={name}_top", f"--top_items={TOP}"]):
            assert model.deploy(repository, "--monolithic", *own) == 0
    with running(repository, tmp_path_factory.mktemp("server") / "log") as server:
        yield server


def column(encoder, feature, ids, dtype=object):
    """Original values of ids as a tensor [rows, 1]."""
    return np.array(encoder.decode(feature, ids).to_pylist(), dtype)[:, None]


def ratings(model):
    """Original values of the split `test`."""
    encoder = Encoder.load(model.data / "encoder")
    users, items = (np.fromfile(model.data / f"test/{n}.bin", np.int32) for n in ("user", "item"))
    return {
        "person": column(encoder, "user", users),
        "movie": column(encoder, "item", items, np.int64),
    }


def events(model):
    """Original values of the split `test`; lists of items are padded at the end."""
    encoder = Encoder.load(model.data / "encoder")
    spec = FeatureSpec.from_yaml(model.data / "feature_spec.yaml")
    parts = blocks(spec, "test", ["user_id", "item_id_trgt", "item_id_pos"])
    users, targets, histories = map(np.concatenate, zip(*parts, strict=True))
    lists = [encoder.decode("item_id_trgt", row[row > 0]).to_pylist() for row in histories]
    padded = [items + [""] * (histories.shape[1] - len(items)) for items in lists]
    return {
        "shopper": column(encoder, "user_id", users[:, 0], np.int64),
        "book": column(encoder, "item_id_trgt", targets[:, 0]),
        "item_id_pos": np.array(padded, object),
    }


def outputs_of(server, name, request):
    status, answer = asked(server, name, request)
    assert status == 200, answer
    return {o["name"]: np.reshape(o["data"], o["shape"]) for o in answer["outputs"]}


@pytest.mark.parametrize(("name", "rows"), [("ncf", ratings), ("sim", events)])
def test_scores(originals, models, tmp_path, name, rows):
    scores = outputs_of(originals, name, rows(models[name]))["scores"]
    expected = models[name].scores(tmp_path)
    np.testing.assert_allclose(scores[:, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "rows"), [("ncf", ratings), ("sim", events)])
def test_recommendations(originals, models, tmp_path, name, rows):
    """The items of `--mode recommend`, without those that the request leaves out."""
    model, path = models[name], tmp_path / "top.csv"
    flags = ["--mode=recommend", f"--top={TOP}", f"--predictions_path={path}", "--cpu", "--seed=1"]
    flags += [f"--dataset_path={model.data}", f"--restore_checkpoint_path={model.checkpoint}"]
    assert model.recipe.main(["prog", f"--run_dir={tmp_path / 'run'}", *flags]) == 0
    expected = {}
    for line in csv.DictReader(path.open()):
        expected.setdefault(line["user"], []).append((line["item"], float(line["score"])))

    columns = rows(model)
    _, first = np.unique(columns["person" if name == "ncf" else "shopper"], return_index=True)
    columns = {column: array[first[:8]] for column, array in columns.items()}
    users = columns["person" if name == "ncf" else "shopper"][:, 0]
    columns.pop("movie" if name == "ncf" else "book")
    answer = outputs_of(originals, f"{name}_top", columns)
    assert answer["items"].dtype.kind == ("i" if name == "ncf" else "U")
    for row, user in enumerate(users):
        items, scores = zip(*expected[str(user)], strict=True)
        assert [str(item) for item in answer["items"][row]] == list(items)
        np.testing.assert_allclose(answer["scores"][row], scores, rtol=0, atol=1e-6)

    excluded = answer["items"][:, :2].astype(str).astype(object)
    others = {"top": np.full((len(users), 1), 2), "excluded_items": excluded}
    less = outputs_of(originals, f"{name}_top", columns | others)
    np.testing.assert_array_equal(less["items"], answer["items"][:, 2:4])
    excluded[-1, 0] = "new"
    status, error = asked(originals, f"{name}_top", columns | others)
    assert status == 400 and "row 7 " in error and "got 'new'" in error
    assert outputs_of(originals, f"{name}_top", columns)["items"].shape == answer["items"].shape


def test_users_of_a_file(originals, models, tmp_path, capsys):
    """Columns of a file that are options of a recommendation may be absent."""
    users = ratings(models["ncf"])["person"][:3]
    file = tmp_path / "users.csv"
    file.write_text("\n".join(["person", *map(str, users[:, 0])]))
    flags = (f"--url=127.0.0.1:{originals.grpc}", "--model=ncf_top", f"--rows={file}")
    assert client.main(list(flags)) == 0
    _, *lines = csv.reader(capsys.readouterr().out.splitlines())
    items = outputs_of(originals, "ncf_top", {"person": users})["items"]
    assert [line[2] for line in lines] == items.astype(str).ravel().tolist()


def test_encoded_request(originals, models):
    """A request may state that it has ids of the data set; items are original ones."""
    encoder = Encoder.load(models["ncf"].data / "encoder")
    (user,) = encoder.encode({"person": ["u17"]}, ["user"])["user"].tolist()
    inputs = [{"name": "user", "datatype": "INT64", "shape": [1, 1], "data": user}]
    body = json.dumps({"parameters": {"encoded": True}, "inputs": inputs}).encode()
    url = f"http://127.0.0.1:{originals.http}/v2/models/ncf_top/infer"
    with urllib.request.urlopen(url, body, timeout=60) as reply:
        answer = json.load(reply)
    request = {"person": np.array([["u17"]], object)}
    assert answer["outputs"] == asked(originals, "ncf_top", request)[1]["outputs"]


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("ncf", {"person": [["u1"]], "movie": [[7]]}, "'movie', row 0 .*one of the 40 .*got 7"),
        ("ncf", {"person": [["?"]], "movie": [[101]]}, "'person', row 0 .*such as u1, .*got '?'"),
        ("ncf", {"user": [[1]], "item": [[1]]}, "got the tensor user, item; needed: person, movie"),
        ("ncf_top", {"person": [["u1"]], "top": [[6]]}, "expected 1 to 5 items.*got 6"),
        ("sim", {"shopper": [[1]]}, "expected the column book, got shopper; needed: book"),
    ],
)
def test_bad_requests(originals, name, request_, message):
    tensors = {
        column: np.array(rows, object if isinstance(rows[0][0], str) else np.int64)
        for column, rows in request_.items()
    }
    status, error = asked(originals, name, tensors)
    assert status == 400
    assert re.search(message, error), error
