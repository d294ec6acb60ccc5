"""Commands of the document of NCF, on generated ratings."""

import re
import zipfile

import pytest

import ncf
from config import parse
from preproc.movielens.generate_ratings import RatingSizes, generate
from tests.original_commands.commands import clone, read_log

USERS, MOVIES = 60, 300


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Folder with archives of both data sets, each in its own format."""
    folder = tmp_path_factory.mktemp("ncf")
    ratings = generate(folder, RatingSizes(3000, USERS, MOVIES), 1).read_text()
    lines = ratings.splitlines()[1:]
    with zipfile.ZipFile(folder / "ml-20m.zip", "w") as archive:
        archive.writestr("ml-20m/ratings.csv", ratings)
    with zipfile.ZipFile(folder / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "\n".join(line.replace(",", "::") for line in lines))
    return folder


@pytest.fixture
def data(commands, archives, tmp_path):
    """The folder that stands for /data; checkpoints and the run's folder are in one of the test."""
    commands.variables |= {"data": archives, "checkpoints": tmp_path / "checkpoints"}
    commands.variables["results"] = tmp_path / "results"
    return archives


def last_values(tmp_path):
    """Returns the summary of the last run."""
    return read_log(tmp_path / "results/log.json")[-1][1]


def test_clone(commands, tmp_path):
    clone(commands, tmp_path, 4, 1, 2)
    assert (tmp_path / "data").is_dir()


def test_help(commands):
    """All flags of the printed usage are read."""
    text = commands.run(11)
    usage = commands.block(12)
    flags = re.findall(r"\[(--?\w+) (\w+|\{\w+)", usage)
    assert len(flags) == 21
    values = {"LAYERS": ["64", "32"], "{train": ["train"], "{O0": ["O0"]}
    values |= {name: ["0.5"] for name in ("BETA1", "BETA2", "EPS", "DROPOUT")}
    for flag, value in flags:
        words = values.get(value, ["1"])
        parse(["ncf.py", "--data=d", flag, *words], "ncf", ncf.DEFAULTS, ncf.ALIASES)
        assert len(flag) == 2 or flag in text


@pytest.mark.long
def test_quick_start(torch, commands, data, tmp_path):
    """A training, then tests of its checkpoint by file and by folder."""
    assert f"successfully prepared at: {data}/cache/ml-20m" in commands.run(6)
    assert "Using cached preprocessed data" in commands.run(7)
    commands.run(8)
    model = torch.load(tmp_path / "checkpoints/model.pth")
    assert model["mf_user_embed.weight"].shape[0] == USERS
    best = last_values(tmp_path)["best_accuracy"]
    for number, flags in ((10, ""), (8, commands.text(9))):
        output = commands.run(number, append=flags)
        assert last_values(tmp_path)["hr@10"] == best
        assert f"hr@10 {best:.5f}" in output


@pytest.mark.long
def test_repeated_trainings(commands, data, tmp_path):
    """Each leaves the best throughputs on stdout, and the checkpoints of those before."""
    for number in (20, 22, 24):
        commands.run(number)
        output = commands.run(number + 1)
        for name in ("best_train_throughput", "best_eval_throughput"):
            assert re.search(rf"{name} [\d.]+k? samples/s", output), output
    steps = [step for step, _ in read_log(tmp_path / "results/log.json") if len(step) == 1]
    assert steps == [[0]]
    for name in ("best", "earlier-1/best", "earlier-2/best"):
        assert (tmp_path / "checkpoints" / name).is_dir()


@pytest.mark.long
def test_ml_1m(commands, data, tmp_path):
    assert f"successfully prepared at: {data}/cache/ml-1m" in commands.run(13)
    commands.run(14)
    assert 0 < last_values(tmp_path)["best_accuracy"] <= 1


@pytest.mark.long
def test_process_counts(commands, data, tmp_path):
    """The commands with a number of processes to fill in, here 1."""
    commands.shell(f"./prepare_dataset.sh ml-20m {data}")
    commands.run(15)
    best = last_values(tmp_path)["best_accuracy"]
    for number, flags in ((17, ""), (15, commands.text(16))):
        commands.run(number, append=flags)
        assert last_values(tmp_path)["hr@10"] == best
