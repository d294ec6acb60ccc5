import subprocess
import sys

import numpy as np
import pytest

from runtime.plots import draw, learning_curve, roc_curve

HISTORY = {
    "train_loss": [(100, 0.6), (200, 0.5), (300, float("nan")), (400, 0.45)],
    "validation_loss": [(200, 0.52), (400, 0.48)],
    "validation_auc": [(200, 0.71), (400, 0.75)],
}


def _size(path):
    import matplotlib.image

    image = matplotlib.image.imread(path)
    assert image.std() > 0.01, "the picture is blank"
    return image.shape[:2]


@pytest.mark.parametrize(
    "names",
    [(), ("train_loss",), ("train_loss", "validation_loss"), tuple(HISTORY)],
    ids=["empty", "training", "losses", "all"],
)
def test_learning_curve_of_whatever_there_is(tmp_path, names):
    path = tmp_path / "new folder" / "learning_curve.png"
    learning_curve(path, {name: HISTORY[name] for name in names})
    height, width = _size(path)
    assert (width > 2 * height) == ("validation_auc" in names)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_learning_curve_of_an_unknown_name(tmp_path):
    with pytest.raises(ValueError, match=r"the history holds \['accuracy'\]"):
        learning_curve(tmp_path / "x.png", {"accuracy": []})


@pytest.mark.parametrize("auc", [0.75, float("nan")], ids=["curve", "one_class"])
def test_roc_curve(tmp_path, auc):
    rate = np.array([0, 0.5, 1]) if auc == auc else np.full(3, np.nan)
    roc_curve(str(tmp_path / "roc.png"), rate, rate**0.5, auc)
    assert _size(tmp_path / "roc.png")[0] > 300


def test_roc_curve_of_unequal_lengths(tmp_path):
    with pytest.raises(ValueError, match="equally long, received 2 and 3"):
        roc_curve(tmp_path / "roc.png", [0, 1], [0, 0.5, 1], 0.5)


def test_a_failed_picture_leaves_the_old_one(tmp_path):
    path = tmp_path / "roc.png"
    path.write_bytes(b"old")
    with pytest.raises(Exception):  # noqa: B017 whatever matplotlib raises for text
        roc_curve(path, ["a", None], [0, {}], 0.5)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["roc.png"]


def test_pyplot_is_never_imported_and_matplotlib_only_to_draw(tmp_path):
    code = (
        "import sys; from runtime.plots import roc_curve; assert 'matplotlib' not in sys.modules;"
        f"roc_curve({str(tmp_path / 'roc.png')!r}, [0, 1], [0, 1], 0.5);"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_in_a_process_of_its_own(tmp_path):
    draw("learning_curve", tmp_path / "a.png", history=HISTORY)
    rates = np.linspace(0, 1, 5)
    draw("roc_curve", tmp_path / "b.png", fpr=rates, tpr=np.sqrt(rates), auc=np.float64("nan"))
    assert _size(tmp_path / "a.png") and _size(tmp_path / "b.png")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="could not be drawn.*file"):
        draw("learning_curve", tmp_path / "file/x.png", history=HISTORY)
