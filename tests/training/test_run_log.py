"""Lines at the start of a run."""

from types import SimpleNamespace

import pytest

from training import run_log


@pytest.mark.parametrize(
    ("local_size", "size", "kind", "mode", "noted"),
    [
        (2, 2, "CPU", "train", True),
        (2, 4, "CPU", "train", False),
        (2, 2, "CPU", "eval", False),
        (2, 2, "GPU", "train", False),
        (1, 1, "CPU", "train", False),
    ],
)
def test_ranks_that_do_not_pay(local_size, size, kind, mode, noted):
    run = SimpleNamespace(
        world=SimpleNamespace(local_size=local_size, size=size),
        device=SimpleNamespace(kind=kind),
        config=SimpleNamespace(run=SimpleNamespace(mode=mode)),
    )
    note = run_log.ranks_note(run)
    assert (note is not None) == noted
    assert not noted or "one process" in note
