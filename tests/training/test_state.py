"""The position of a training as checkpoints store it, those of earlier versions included."""

import json

import pytest

from recipes.recipe import Goal
from training.state import Best, Position

CLICKS = Goal()
RANKING = Goal("hr@10", 0.6, "threshold", "hr@10", reports_time_to_best=True)


def stored(position, goal):
    return json.loads(json.dumps(position.to_json(goal)))


CLICK_NAMES = ("best_auc", "best_auc_step", "time_to_auc_threshold_s")
RANKING_NAMES = ("best_hr@10", "best_hr@10_step", "best_epoch", "time_to_best_s")


@pytest.mark.parametrize(
    ("goal", "best"),
    [
        (CLICKS, dict(zip(CLICK_NAMES, (0.7, 4, 3.5), strict=True))),
        (
            RANKING,
            dict(zip((*RANKING_NAMES, "time_to_threshold_s"), (0.7, 4, 1, 2.5, 3.5), strict=True)),
        ),
    ],
)
def test_stored_best(goal, best):
    state = stored(Position(step=6, best=Best(0.7, 4, 1, 2.5), goal_reached_s=3.5), goal)
    assert state["best"] == best
    names = "step first_step epoch row evaluated_step elapsed_s trainer metrics best best_metrics"
    assert list(state) == [*names.split(), "history"]
    assert stored(Position.from_json(state, goal), goal) == state


def test_position_without_evaluation():
    state = stored(Position(step=2, row=512), CLICKS)
    assert state["best"] == {}
    assert Position.from_json(state, CLICKS) == Position(step=2, row=512)


def test_best_of_another_metric():
    """HR@5 of an earlier run is not a value of HR@10."""
    position = Position(best=Best(0.9, 4, 1, 2.5), best_metrics={"hr@5": 0.9})
    state = stored(position, Goal("hr@5", None, "threshold", reports_time_to_best=True))
    other = Position.from_json(state, RANKING)
    assert (other.best, other.best_metrics) == (None, {})


def test_copy_of_the_history():
    """A checkpoint is written while the training continues."""
    position = Position()
    state = position.to_json(CLICKS)
    position.history["train_loss"].append((1, 0.5))
    assert state["history"]["train_loss"] == []
