import numpy as np
import pytest

from runtime.logs import plots
from runtime.logs.plots import draw, evaluation, join_short_means, learning_curve, loss_limit

EARLY = [(10, 0.7), (20, 0.6), (50, 0.5), (1000, 0.4), (2000, 0.3), (3000, 0.2)]
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


@pytest.mark.parametrize("num_lines", range(4))
def test_learning_curve_of_whatever_there_is(tmp_path, num_lines):
    path = tmp_path / "new folder" / "learning_curve.png"
    names = list(HISTORY)[:num_lines]
    learning_curve(path, {name: HISTORY[name] for name in names})
    height, width = _size(path)
    assert (width > 2 * height) == ("validation_auc" in names)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_lines_and_axes_of_a_learning_curve(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "write_picture", lambda figure, path: figures.append(figure))
    learning_curve("a.png", HISTORY, best_reachable_auc=0.79, split="test", best_step=200)
    loss, quality = figures[0].axes
    assert [line.get_label() for line in loss.lines[:2]] == ["training", "test"]
    assert quality.lines[0].get_label() == "test"
    assert (loss.get_ylabel(), quality.get_ylabel()) == ("log loss [nats]", "ROC AUC")
    (line,) = (line for line in quality.lines if "reachable" in line.get_label())
    assert line.get_label() == "best reachable 0.79000" and set(line.get_ydata()) == {0.79}
    stars = [line for axes in (loss, quality) for line in axes.lines if line.get_marker() == "*"]
    points = [(*line.get_xdata(), *line.get_ydata()) for line in stars]
    assert points == [(200, 0.52), (200, 0.71)], "one step, in both panels"
    assert loss.get_xlim() == quality.get_xlim() and loss.get_xlim()[0] == 0
    ranking = {"validation_hr@2": [(1, 0.25), (2, 0.5), (3, 0.75)], "validation_loss": [(3, 0.4)]}
    learning_curve("b.png", ranking, best_reachable_auc=0.79)
    loss, quality = figures[1].axes
    assert quality.get_title() == quality.get_ylabel() == "HR@2"
    assert not any("reachable" in line.get_label() for line in quality.lines)
    assert all(step == round(step) for step in quality.get_xticks())
    by_loss = {"validation_loss": [(3, 0.4)], "validation_log_loss": [(3, 0.4)]}
    learning_curve("d.png", {**by_loss, "validation_auc": [(3, 0.7)]})
    assert figures.pop().axes[1].get_ylabel() == "ROC AUC", "the loss has a panel"
    learning_curve("c.png", {"train_loss": [(10, 0.6)]})
    assert figures[2].axes[0].lines[0].get_marker() == "o", "a line of one point is invisible"
    evaluation("roc.png", **of_an_evaluation())
    evaluation("roc.png", **of_an_evaluation(), step=1200)
    titles = [figure.get_suptitle() for figure in figures[3:]]
    assert titles == ["test split", "test split, weights of step 1,200"]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], []),
        ([(10, 0.7)], [(10, 0.7)]),
        # 2 steps of 8 noisy ones, next to an evaluation at step 18.
        ([(10, 0.5), (18, 0.4), (20, 0.9), (28, 0.4)], [(10, 0.5), (18, 0.4), (28, 0.5)]),
        # The remainder at the end has a point of its own.
        ([(10, 0.5), (20, 0.4), (21, 0.9)], [(10, 0.5), (20, 0.4), (21, 0.9)]),
        # Early steps keep their own points.
        (EARLY, EARLY),
    ],
)
def test_joined_means_over_few_steps(points, expected):
    joined = join_short_means(points)
    assert [step for step, _ in joined] == [step for step, _ in expected]
    assert [value for _, value in joined] == pytest.approx([value for _, value in expected])


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], None),
        ([(1, 9.0), (100, 0.5)], None),
        ([(1, 1.6), (50, 0.6), (100, 0.5)], 0.61),
        ([(1, 0.64), (50, 0.6), (100, 0.5)], None),
        ([(50, 1.6), (60, 0.6), (100, 0.5)], None),
    ],
)
def test_axis_and_first_losses(points, expected):
    assert loss_limit(points) == (expected and pytest.approx(expected))


def of_an_evaluation(fpr=(0, 0.5, 1), tpr=(0, 0.7, 1), auc=0.75):
    return {
        "split": "test",
        "curves": {"fpr": fpr, "tpr": tpr, "auc": auc, "pr_auc": 0.3},
        "reliability": {"predicted": [0.1, 0.4], "observed": [0.2, 0.3], "mass": [30.0, 10.0]},
        "histogram": {"largest": 0.5, "shares": [[0.5, 0.5], [0.0, 1.0]]},
    }


@pytest.mark.parametrize("auc", [0.75, float("nan")], ids=["curve", "one_class"])
def test_evaluation(tmp_path, auc):
    content = of_an_evaluation(auc=auc)
    if auc != auc:
        content["curves"] |= {"fpr": [np.nan] * 3, "tpr": [0, 0.5, 1]}
        content["reliability"]["observed"] = [1.0, 1.0]
        content["histogram"]["shares"] = [[0.0, 0.0], [0.5, 0.5]]
    evaluation(str(tmp_path / "roc.png"), **content)
    height, width = _size(tmp_path / "roc.png")
    assert width > 2.5 * height > 1000


def test_old_plot_after_a_failure(tmp_path):
    path = tmp_path / "roc.png"
    path.write_bytes(b"old")
    with pytest.raises(Exception):  # noqa: B017 whatever matplotlib raises for text
        evaluation(path, **of_an_evaluation(["a", None, 1], [0, {}, 1]))
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["roc.png"]


def test_picture_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="could not be drawn.*file"):
        draw("learning_curve", tmp_path / "file/x.png", history=HISTORY)
