"""`LoadedModel.predict`: raw rows in, scores out, with the encoder of the checkpoint."""

import shutil

import numpy as np
import pyarrow.csv
import pytest

import recipes
import sim
from deployment.deploy import __main__ as deploy
from deployment.model.trained_model import evaluation_rows, open_checkpoint
from preproc.amazon_books import __main__ as amazon_books
from preproc.encoding.encoder import EncodingError
from runtime import checkpoint
from tests.deployment import trained as trainings


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A model of texts, lists and prices, and the raw rows of the test split."""
    folder = tmp_path_factory.mktemp("shop")
    trained = trainings.train_dlrm_of_texts(folder)
    rows = pyarrow.csv.read_csv(folder / "raw/test.csv")
    return trained, rows, trained.scores(tmp_path_factory.mktemp("scores"))


@pytest.fixture(scope="module")
def model(shop):
    return recipes.load_model(shop[0].checkpoint)


def encoded_row(model):
    """One sample of id 0 in all features."""
    return {name: np.zeros((1, 2 if name == "tags" else 1), int) for name in model.features}


def test_scores_of_the_encoded_split(shop, model):
    """Bit for bit those of `--mode predict`, in the order of the rows, in batches of any form."""
    _, rows, expected = shop
    columns = {name: rows[name].to_pylist() for name in rows.schema.names}
    arrays = {name: np.array(values) for name, values in columns.items()}
    for form in (rows, columns, arrays, rows.drop_columns(["bought"])):
        np.testing.assert_array_equal(model.predict(form), expected, strict=True)
    (batch,) = rows.combine_chunks().to_batches()
    np.testing.assert_array_equal(model.predict(batch), expected, strict=True)
    assert set(model.columns) == {"city", "user", "tags", "price"}


def test_batches(shop, model, monkeypatch):
    _, rows, expected = shop
    monkeypatch.setattr(model, "_batch_size", 7)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-6)
    columns = {name: rows[name].to_pylist() for name in rows.schema.names}
    columns["price"][40] = "cheap"
    with pytest.raises(EncodingError, match=r"'price', row 41 .* expected a number, got 'cheap'"):
        model.predict({**columns, "price": [str(price) for price in columns["price"]]})


def test_one_row(shop, model):
    _, rows, expected = shop
    (row,) = rows.slice(5, 1).to_pylist()
    score = model.predict(row)
    assert isinstance(score, float) and score == pytest.approx(expected[5], rel=1e-6)
    assert model.predict({**row, "tags": row["tags"].split(";")}) == score
    assert model.predict({**row, "price": str(row["price"])}) == score
    assert model.predict({**row, "city": "Rome"}) == model.predict({**row, "city": None})
    assert model.predict(rows.slice(0, 0)).shape == (0,)


def test_long_lists(shop, model, monkeypatch):
    """They are reported once per call, whatever the batches."""
    rows = {**shop[1].slice(0, 1).to_pylist()[0], "tags": "new;sale;new"}
    rows = {name: [value] * 9 for name, value in rows.items()}
    rows["tags"][2] = "new;sale"
    monkeypatch.setattr(model, "_batch_size", 4)
    with pytest.warns(UserWarning, match="truncated lists: tags 8: they are longer") as caught:
        scores = model.predict(rows)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert scores[0] == pytest.approx(scores[2], rel=1e-6)


def test_values_of_ids(model):
    ids = model.encoder.encode({"city": ["Oslo", "Rome", "Bern"]}, ["city"])["city"].ravel()
    assert model.decode("city", ids).to_pylist() == ["Oslo", None, "Bern"]
    with pytest.raises(ValueError, match="unknown feature 'town': expected one of"):
        model.decode("town", [1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": None}, "expected a column 'price', got the columns city, user, tags"),
        (
            {"price": None, "prize": [1.0]},
            "a column 'price', got the columns city, user, tags, prize; is it called 'prize'",
        ),
        (
            {"price": None, "prize": 1, "city": "Oslo", "user": "u", "tags": "new"},
            "a column 'price', got the columns .*, prize; is it called 'prize'",  # of one row
        ),
        ({"price": ["cheap"]}, "'price', row 1 .* expected a number, got 'cheap'"),
        ({"price": 1.0}, "'city': expected one value, .* got a list of 1"),
        (
            {"price": [1.0, 2.0]},
            "equally many values of each column, got 2 of 'price', 1 of 'city'",
        ),
    ],
)
def test_errors(model, change, message):
    rows = {"city": ["Oslo"], "user": ["u"], "tags": ["new"], "price": [1.0]} | change
    rows = {name: values for name, values in rows.items() if values is not None}
    with pytest.raises(ValueError, match=message):
        model.predict(rows)
    with pytest.raises(EncodingError, match="expected a column"):
        model.predict({"town": ["Oslo"]})


def test_without_the_data_set(shop, tmp_path):
    """The checkpoint has all that predictions and deployments need."""
    trained, rows, expected = shop
    path = shutil.copytree(checkpoint.resolve(trained.checkpoint), tmp_path / "model")
    hidden = trained.data.with_name("hidden")
    trained.data.rename(hidden)
    try:
        np.testing.assert_array_equal(recipes.load_model(path).predict(rows), expected)
        flags = [f"--checkpoint_dir={path}", f"--model_repository={tmp_path / 'repository'}"]
        assert deploy.main(flags) == 0
    finally:
        hidden.rename(trained.data)


def test_damaged_encoder(shop, tmp_path):
    """One error, when the encoder is read; the model still scores encoded samples."""
    path = shutil.copytree(checkpoint.resolve(shop[0].checkpoint), tmp_path / "model")
    file = path / "encoder/vocabulary/city.parquet"
    content = file.read_bytes()
    file.unlink()  # it may be a hard link
    file.write_bytes(content[:-20])
    model = recipes.load_model(path)
    with pytest.raises(ValueError, match=r"encoder: expected the complete folder of an encoder"):
        model.predict(shop[1])
    assert 0 < model(encoded_row(model))[0] < 1


def test_encoder_of_other_data(shop, tmp_path):
    path = shutil.copytree(checkpoint.resolve(shop[0].checkpoint), tmp_path / "model")
    file = path / "encoder/encoder.json"
    content = file.read_text()
    file.unlink()
    file.write_text(content.replace('"digest": "', '"digest": "0'))
    with pytest.raises(ValueError, match="expected the encoder with the digest .*another data set"):
        recipes.load_model(path).predict(shop[1])


def test_model_without_encoder(shop, tmp_path):
    """Data sets of other tools; the error names the way that works."""
    path = shutil.copytree(checkpoint.resolve(shop[0].checkpoint), tmp_path / "model")
    data = shutil.copytree(shop[0].data, tmp_path / "data")
    for folder in (path, data):
        shutil.rmtree(folder / "encoder")
    model = recipes.load_model(path, data)
    with pytest.raises(ValueError, match=r"has no encoder, .* pass encoded values to model\(batch"):
        model.predict(shop[1])
    assert 0 < model(encoded_row(model))[0] < 1


def originals(model, feature, ids):
    """Original values of ids [rows, 1], or lists of those of a history [rows, steps]."""
    ids = np.asarray(ids)
    values = model.decode(feature, ids.ravel()).to_pylist()
    if ids.ndim == 1 or ids.shape[1] == 1:
        return values
    return [
        [v for v in values[i : i + ids.shape[1]] if v is not None]
        for i in range(0, ids.size, ids.shape[1])
    ]


def test_histories(tmp_path):
    """Users, items and histories as originals; the loader's samples have the same scores."""
    lines = [f"u{n % 20},book {n * n % 31},{n}" for n in range(400)]
    (tmp_path / "log.csv").write_text("\n".join(["who,what,when", *lines]))
    columns = ("--user_column=who", "--item_column=what", "--time_column=when")
    flags = ("--input_format=tables", f"--interactions={tmp_path / 'log.csv'}", "--max_history=12")
    assert amazon_books.main([*columns, *flags, f"--output={tmp_path / 'data'}"]) == 0
    flags = ["--model_type=din", *(flag for flag in trainings.SIM if "gsu" not in flag)]
    trained = trainings.train(sim, tmp_path, flags, tmp_path / "data")
    model = recipes.load_model(trained.checkpoint)
    assert model.columns == ("who", "what", "item_id_pos")
    batch = next(iter(evaluation_rows(open_checkpoint(str(trained.checkpoint)), 16).dataset()))
    inputs = batch.inputs
    rows = {"who": originals(model, "user_id", inputs.user[0])}
    rows["what"] = originals(model, "item_id_trgt", inputs.target[0])
    rows["item_id_pos"] = originals(model, "item_id_pos", inputs.positive[0])
    assert max(map(len, rows["item_id_pos"])) > 5
    np.testing.assert_array_equal(model.predict(rows), model(batch))
    row = {name: values[3] for name, values in rows.items()}
    assert model.predict(row) == pytest.approx(model(batch)[3], rel=1e-6)
    row["item_id_pos"] = ["book 9", *row["item_id_pos"], "unknown"] + ["book 1"] * 12
    assert model.predict(row) == model.predict({**row, "item_id_pos": ["book 1"] * 12})
