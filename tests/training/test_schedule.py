"""Cases of what is due after a step, in 2 epochs of 5 batches, evaluated after 2 and 5."""

from types import SimpleNamespace

import pytest

from recipes.recipe import Goal
from training.schedule import Schedule
from training.state import Best, Position

SCHEDULE = {
    "total_steps": 10,
    "num_samples": 45,
    "batch_size": 10,
    "evaluated_batches": {2, 5},
    "print_freq": 4,
}


def at(step, evaluated_step=0, values=(), best_step=None):
    """The position after a step."""
    batch = (step - 1) % 5 + 1 if step else 0
    return Position(
        step=step,
        epoch=max(0, step - 1) // 5,
        row=min(10 * batch, 45),
        evaluated_step=evaluated_step,
        best=None if best_step is None else Best(0.8, best_step),
        history={"validation_auc": list(enumerate(values))},
    )


def due(position, is_start=False, saves=True, saved=None, stops=None, minutes=False, **rules):
    """The names of what is due."""
    checkpoints = SimpleNamespace(saves=saves, saved_step=saved, stopping=stops, is_due=minutes)
    work = Schedule(**SCHEDULE | rules).due(position, checkpoints, is_start)
    return " ".join(name for name, value in work._asdict().items() if value)


END = "save is_over is_complete"
EVERY_2 = {"checkpoint_every": 2}
KEEPS = {"keeps_best": True, "evaluated_batches": {3}}
PATIENT, GOAL = {"patience": 2}, {"goal": Goal(threshold=0.7)}


@pytest.mark.parametrize(
    ("position", "facts", "expected"),
    [
        (at(1), {}, ""),
        (at(4), {}, "report"),
        # Evaluations: what follows is decided after them.
        (at(2), {}, "evaluate"),
        (at(2, evaluated_step=2), {}, ""),
        (at(5), {}, "evaluate"),
        (at(5, evaluated_step=5), {}, "end_epoch"),
        (at(5), {"evaluated_batches": ()}, "end_epoch"),
        (at(9), {"total_steps": 9}, f"evaluate {END[:-12]}"),
        # The end: of all steps, by a threshold, by patience.
        (at(10, evaluated_step=10), {}, f"end_epoch {END}"),
        (at(10, evaluated_step=10), {"saves": False}, "end_epoch is_over is_complete"),
        (at(2, 2, [0.6, 0.7]), GOAL, END),
        (at(2, 2, [0.6, 0.69]), GOAL, ""),
        (at(7, 7, [0.6, 0.5, 0.4]), PATIENT, END),
        (at(7, 7, [0.6, 0.5, 0.61]), PATIENT, ""),
        # A stop: the evaluation waits for the next run.
        (at(3), {"stops": "SIGTERM"}, "save is_over"),
        (at(5), {"stops": "SIGTERM"}, "save is_over"),
        (at(10), {"stops": "SIGTERM"}, "save is_over"),
        (at(10, evaluated_step=10), {"stops": "SIGTERM"}, f"end_epoch {END}"),
        # Checkpoints: by steps, minutes, epochs and metrics, and none twice.
        (at(4), EVERY_2, "report save"),
        (at(4), EVERY_2 | {"saves": False}, "report"),
        (at(4), EVERY_2 | {"saved": 4}, "report"),
        (at(1), {"minutes": True}, "save"),
        (at(5, evaluated_step=5), {"saves_epochs": True}, "end_epoch save"),
        (at(3, 3, best_step=3), KEEPS, "save is_best"),
        (at(4, 3, best_step=3), KEEPS, "report"),
        # The profile.
        (at(3), {"profiled_from": 3, "profiled_until": 5}, "start_profile"),
        (at(6), {"profiled_from": 3, "profiled_until": 6}, "stop_profile"),
        # The start of a run: a new one, one that continues, and one with nothing left to do.
        (at(0), {"is_start": True}, ""),
        (at(0), {"is_start": True, "profiled_from": 0}, "start_profile"),
        (at(4), {"is_start": True, **EVERY_2}, ""),
        (at(5), {"is_start": True}, "evaluate"),
        (at(5, evaluated_step=5), {"is_start": True, "saves_epochs": True}, ""),
        (at(10, evaluated_step=10), {"is_start": True}, "is_over is_complete"),
        (at(10), {"is_start": True}, "evaluate is_over"),
        (at(2, 2, [0.7]), {"is_start": True, **GOAL}, "is_over is_complete"),
    ],
)
def test_due(position, facts, expected):
    assert due(position, **facts) == expected
