"""`ncf.py` from interactions to a trained, evaluated and used model, on tiny data."""

import re
import shutil

import numpy as np
import pytest
import yaml

import main as entry
import ncf
from tests import tastes
from tests.recipes.test_entry_scripts import lines, runner
from tests.tables import arrays_of, check_same_arrays
from tests.vocabularies import write_encoder

TINY = (
    "--preset=terabyte",
    *("-b=240", "--valid_batch_size=300", "-f=8", "--layers=16,16,8", "-l=0.03", "-e=4", "-s=1"),
    *("--print_freq=5", "-k=3", "--dropout=0.1", "-b1=0.9", "-b2=0.999"),
)
GMF = ("--model_type=gmf", *(flag for flag in TINY if "layers" not in flag and "drop" not in flag))
MLP = ("--model_type=mlp", *(flag for flag in TINY if flag[:2] not in ("-f", "-e")), "-e=12")
MODELS = {"neumf": TINY, "gmf": GMF, "mlp": MLP}
# Of 13 items the first three places, by chance.
CHANCE = 3 / 13


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """480 interactions of 60 users, so that an epoch has 2,400 rows; lists of 13 rows."""
    folder = tmp_path_factory.mktemp("interactions") / "rows"
    tastes.write(folder)
    return folder


run = runner(ncf, "--data")


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    """Returns (folder of checkpoints, summary, folder of the run) of each kind of model."""
    models = {}
    for name, flags in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        summary = run(rows, folder / "run", *flags, f"--checkpoint_dir={folder / 'model'}")
        models[name] = folder / "model", summary, folder / "run"
    return models


def test_data_of_other_ids(rows, tmp_path, capsys):
    """Data sets of equal sizes whose encoders differ: their ids are other users and items."""
    checkpoint = f"--checkpoint_dir={tmp_path / 'model'}"
    for name, code in (("own", 0), ("other", 2)):
        data = shutil.copytree(rows, tmp_path / name)
        spec = yaml.safe_load((data / "feature_spec.yaml").read_text())
        spec["metadata"] = {**spec.get("metadata", {}), "encoder": name}
        (data / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
        if name == "own":
            run(data, tmp_path / "run", *GMF, "-e=1", checkpoint)
        restore = ("--mode=eval", f"--restore_checkpoint_path={tmp_path / 'model'}")
        run(data, tmp_path / "eval", *restore, code=code)
    assert f"{tmp_path / 'other'}, whose ids are other values" in capsys.readouterr().err


@pytest.mark.parametrize("model", MODELS)
def test_train_and_test(model, rows, trained, tmp_path):
    folder, summary, _ = trained[model]
    assert summary["steps"] == (120 if model == "mlp" else 40)
    assert summary["best_accuracy"] > 2 * CHANCE
    tested = run(rows, tmp_path, "--mode", "test", f"--checkpoint_dir={folder}", "-k=3")
    assert tested["hr@3"] == summary["best_accuracy"], "the best one is kept"
    assert tested["best_eval_throughput"] > 0


def test_original_log_lines(trained):
    log = lines(trained["neumf"][2] / "log.json")
    entries = [(line["step"], line["data"]) for line in log if line["type"] == "LOG"]
    epochs = [(step, data) for step, data in entries if isinstance(step, list) and len(step) == 1]
    assert [step for step, _ in epochs] == [[0], [1], [2], [3]]
    for _, data in epochs:
        assert data["train_throughput"] == pytest.approx(2400 / data["train_epoch_time"], rel=1e-6)
        assert data["eval_throughput"] == pytest.approx(
            60 * 13 / data["validation_epoch_time"], rel=1e-6
        )
        assert {"hr@3", "ndcg@3", "train_loss", "test_loss"} <= data.keys()
    summary = trained["neumf"][1]
    for name in ("hr@3", "ndcg@3", "test_loss"):
        assert summary[name] == epochs[-1][1][name]
    best = max(range(4), key=lambda epoch: epochs[epoch][1]["hr@3"])
    assert summary["best_epoch"] == best
    assert summary["best_accuracy"] == epochs[best][1]["hr@3"]
    assert 0 < summary["time_to_best_model"] <= summary["elapsed_s"]
    for name in ("train_throughput", "eval_throughput"):
        rates = [data[name] for _, data in epochs]
        assert summary[f"best_{name}"] == max(rates)
        assert summary[f"mean_{name}"] == pytest.approx(np.mean(rates))
    assert summary["time_to_target"] == pytest.approx(summary["elapsed_s"], abs=0.1)
    assert summary["train_loss"] == epochs[-1][1]["train_loss"]
    units = {x["metric"]: x["metadata"] for x in log if "metric" in x}
    assert units["time_to_target"] == {"unit": "s"}
    assert units["train_throughput"] == {"unit": "samples/s"}
    assert units["hr@3"] == {"format": ":.5f", "split": "test"}
    assert units["validation_epoch_time"] == {"unit": "s"}


def test_threshold(rows, tmp_path, capsys):
    summary = run(rows, tmp_path / "a", *GMF, "--threshold=0.3", "--evals_per_epoch=2")
    assert summary["steps"] < 40 and summary["hr@3"] >= 0.3
    assert summary["time_to_target"] == pytest.approx(summary["time_to_best_model"])
    capsys.readouterr()
    summary = run(rows, tmp_path / "b", *GMF, "-t=0.999", "-e=1")
    assert summary["time_to_target"] == pytest.approx(summary["elapsed_s"], abs=0.1)
    assert "--threshold 0.999 was not reached" in capsys.readouterr().out


def test_best_of_a_resumed_training(rows, tmp_path, capsys):
    """Without --checkpoint_dir on its command line, too; the other modes take the best one."""
    model = tmp_path / "model"
    run(rows, tmp_path / "run", *GMF, "-e=1", f"--checkpoint_dir={model}")
    run(rows, tmp_path / "again", f"--resume={model}", "-e=2", "--learning_rate=0")
    assert (model / "best").is_symlink()
    capsys.readouterr()
    run(rows, tmp_path / "test", "--mode=eval", f"--restore_checkpoint_path={model}")
    assert f"weights of {model / 'best'}" in capsys.readouterr().out


def test_resumed_training(rows, trained, tmp_path):
    """With dropout, cut in the middle of an epoch."""
    resume = (*TINY, f"--checkpoint_dir={tmp_path / 'model'}", "--resume=auto")
    run(rows, tmp_path / "parts", *resume, "--max_steps=13")
    assert run(rows, tmp_path / "parts", *resume, "--max_steps=-1")["steps"] == 40
    check_same_arrays(trained["neumf"][0], tmp_path / "model")


def test_accumulated_batches(rows, tmp_path):
    flags = (*GMF, "--optimizer=sgd", "-e=2", "-l=2")
    flags = tuple(flag for flag in flags if not flag.startswith(("-b1", "-b2")))
    large = (*flags, "-b=700", f"--checkpoint_dir={tmp_path / 'a'}")
    parts = (*flags, "-b=175", "--grads_accumulated=4", f"--checkpoint_dir={tmp_path / 'b'}")
    one, other = run(rows, tmp_path / "1", *large), run(rows, tmp_path / "2", *parts)
    assert one["steps"] == other["steps"] == 8  # the last batch of an epoch has 300 rows
    assert one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-6)
    one, other = arrays_of(tmp_path / "a"), arrays_of(tmp_path / "b")
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-6, err_msg=name)


def logits_of(rows, run_dir, *flags):
    """Logits of all test rows."""
    scores = run_dir / "scores.npy"
    run(rows, run_dir, "--mode=predict", f"--predictions_path={scores}", *flags)
    values = np.load(scores).astype(np.float64)
    return np.log(values / (1 - values))


def test_kept_columns(rows, trained, tmp_path, capsys):
    """Users have a vocabulary, items have none."""
    keyed = tmp_path / "rows"
    shutil.copytree(rows, keyed)
    write_encoder(keyed, user=[f"u{7 * user}" for user in range(tastes.USERS)])
    load, path = f"--checkpoint_dir={trained['gmf'][0]}", tmp_path / "scores.csv"
    flags = ("--mode=predict", load, f"--predictions_path={path}")
    run(keyed, tmp_path / "a", *flags, "--predictions_keep=item,user")
    table = np.loadtxt(path, str, delimiter=",")
    assert table[0].tolist() == ["row", "item", "user", "score"]
    assert table[1:, 1].tolist() == [str(i) for i in np.fromfile(rows / "test/item_0.bin", "i4")]
    users = [f'"u{7 * user}"' for user in np.fromfile(rows / "test/user_0.bin", "i4")]
    assert table[1:, 2].tolist() == users
    for value, message in (
        ("itme", "--predictions_keep itme: .*did you mean 'item'"),
        ("item,,user", "--predictions_keep .*got 'item,,user'"),
        ("item,item", "--predictions_keep .*each once"),
    ):
        run(keyed, tmp_path / "b", *flags, f"--predictions_keep={value}", code=entry.USER_ERROR)
        assert re.search(message, capsys.readouterr().err)
    other = f"--predictions_path={tmp_path / 'a.npy'}"
    run(keyed, tmp_path / "c", *flags, other, "--predictions_keep=item", code=entry.USER_ERROR)
    assert "a .npy file has the scores alone" in capsys.readouterr().err


def test_pretrained_branches(rows, trained, tmp_path, capsys):
    gmf, mlp = (trained[name][0] for name in ("gmf", "mlp"))
    flags = (f"--pretrained_gmf={gmf}", f"--pretrained_mlp={mlp}", "--alpha=0.3", "-l=0", "-e=1")
    flags = (*(flag for flag in TINY if flag[:2] not in ("-l", "-e")), *flags)
    run(rows, tmp_path / "train", *flags, f"--checkpoint_dir={tmp_path / 'model'}")
    assert "times 0.3 and" in capsys.readouterr().out
    again = (*flags, f"--checkpoint_dir={tmp_path / 'model'}", "--resume=auto")
    run(rows, tmp_path / "train", *again)
    assert "start from other models: not read: the training resumes" in capsys.readouterr().out
    got, of_gmf, of_mlp = (
        logits_of(rows, tmp_path / name, f"--checkpoint_dir={folder}")
        for name, folder in (("n", tmp_path / "model"), ("g", gmf), ("m", mlp))
    )
    np.testing.assert_allclose(got, 0.3 * of_gmf + 0.7 * of_mlp, rtol=1e-3, atol=1e-4)
    wrong = (*TINY, f"--pretrained_gmf={mlp}", f"--pretrained_mlp={mlp}")
    run(rows, tmp_path / "wrong", *wrong, code=entry.USER_ERROR)
    assert "is a checkpoint of the model mlp: give one that was" in capsys.readouterr().err
    other_size = (*flags, "-f=4")
    run(rows, tmp_path / "size", *other_size, code=entry.USER_ERROR)
    assert re.search(r"is float32 \[8, 1\], the model needs", capsys.readouterr().err)


def test_predict_and_inference(rows, trained, tmp_path):
    """Predictions are the test rows', in their order: the metrics follow from them."""
    folder, summary, _ = trained["gmf"]
    scores = logits_of(rows, tmp_path / "p", f"--checkpoint_dir={folder}").reshape(60, 13)
    items = np.fromfile(rows / "test/item_0.bin", np.int32).reshape(60, 13)
    hits = 0
    for row, ids in zip(scores, items, strict=True):
        above = {i for i, score in zip(ids[1:], row[1:], strict=True) if score >= row[0]} - {ids[0]}
        hits += len(above) < 3
    assert hits / 60 == pytest.approx(summary["best_accuracy"], abs=1e-9)
    load = (f"--checkpoint_dir={folder}", "--mode=inference", "--max_steps=3", "-k=3")
    measured = run(rows, tmp_path / "i", *load, "--valid_batch_size=130")
    assert measured["hr@3"] == summary["best_accuracy"]
    assert measured["latency_p90"] > 0 and measured["throughput"] > 0


def test_drawn_negatives(tmp_path, capsys):
    tastes.write(tmp_path / "rows")
    spec = yaml.safe_load((tmp_path / "rows/feature_spec.yaml").read_text())
    names, folder = ("user", "item"), tmp_path / "rows"
    columns = {
        split: {name: np.fromfile(folder / split / f"{name}_0.bin", np.int32) for name in names}
        for split in spec["source_spec"]
    }
    columns["test"] = {name: values[::13] for name, values in columns["test"].items()}
    tastes.store(tmp_path / "positives", columns)
    flags = (*GMF, "--valid_negative=20", "-e=2")
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    summary = run(tmp_path / "positives", tmp_path / "run", *flags, save)
    log = (tmp_path / "run/log.json").read_text()
    assert "evaluation_rows 1,260" in log
    assert summary["hr@3"] > 3 / 21
    load = ("--mode=test", f"--restore_checkpoint_path={tmp_path / 'model'}", *flags[:1], "-k=3")
    again = [
        run(tmp_path / "positives", tmp_path / f"again{seed}", *load, "--valid_negative=20", seed)
        for seed in ("-s=1", "-s=2")
    ]
    assert again[0]["hr@3"] == again[1]["hr@3"] == summary["hr@3"], "whatever the seed"
    run(tmp_path / "rows", tmp_path / "b", *flags, code=entry.USER_ERROR)
    run(tmp_path / "rows", tmp_path / "c", *GMF, "--valid_negative=5", "-e=1")
    assert "evaluation_rows 360" in (tmp_path / "c/log.json").read_text()
    run(tmp_path / "rows", tmp_path / "d", *GMF, "--valid_negative=2", code=entry.USER_ERROR)
    assert "--topk 3 of candidate lists of 3 items" in capsys.readouterr().err


def test_no_test_samples_in_training(tmp_path):
    tastes.write(tmp_path / "rows", 7, ("train", "validation", "test"))
    (tmp_path / "rows/test/item_0.bin").write_bytes(b"not to be read")
    flags = (*GMF, "-e=1", f"--checkpoint_dir={tmp_path / 'model'}")
    assert "hr@3" in run(tmp_path / "rows", tmp_path / "run", *flags)
    flags = ("--mode=test", f"--checkpoint_dir={tmp_path / 'model'}")
    run(tmp_path / "rows", tmp_path / "t", *flags, code=entry.USER_ERROR)


def test_negatives_by_popularity(rows, trained, tmp_path):
    """Two trainings that differ in the drawn negatives only."""
    popular = run(rows, tmp_path, *GMF, "--negative_exponent=1")
    alike = trained["gmf"][1]
    assert popular["steps"] == alike["steps"]
    assert popular["test_loss"] != pytest.approx(alike["test_loss"], rel=1e-3)


def test_plan(rows, capsys):
    flags = ("--plan_only", "--plan_world_size=2", "--plan_ranks_per_machine=1")
    assert ncf.main(["ncf.py", f"--data={rows}", *TINY, *flags]) == 0
    output = capsys.readouterr().out
    assert "between machines of 1 rank " in output
    ranks = [line for line in output.splitlines() if line.strip().startswith(("0 ", "1 "))]
    assert [line.split()[-3:-1] for line in ranks] == [["1.66", "KiB"]] * 2
    for table in ("mf_user", "mf_item", "mlp_user", "mlp_item"):
        assert table in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--local_rank=1",), "--local_rank 1, but this is process 0 of 1 .* horovodrun"),
        (("--mode=predict", "--predictions_path=s.npy"), "--mode predict needs a trained model"),
        (("--eval_mapping=validation",), "split 'validation'"),
    ],
)
def test_user_errors(flags, message, rows, tmp_path, capsys):
    run(rows, tmp_path, *GMF, *flags, code=entry.USER_ERROR)
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error), error


def test_container_folder(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(ncf, "CONTAINER_DATA", str(tmp_path))
    run(rows, tmp_path / "run", *GMF, "-e=1")
    assert (tmp_path / "checkpoints/best/checkpoint.json").exists()
    assert run(rows, tmp_path / "test", "--mode=test", "-k=3")["hr@3"] > CHANCE
