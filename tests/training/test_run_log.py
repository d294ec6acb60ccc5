"""Lines at the start of a run."""

from types import SimpleNamespace

import pytest

from training import run_log


@pytest.mark.parametrize(
    ("ranks", "kind", "mode", "batch_size", "noted"),
    [
        (2, "CPU", "train", run_log.SMALL_BATCH - 1, True),
        (2, "CPU", "train", run_log.SMALL_BATCH, False),
        (2, "CPU", "eval", 64, False),
        (2, "GPU", "train", 64, False),
        (1, "CPU", "train", 64, False),
    ],
)
def test_ranks_that_do_not_pay(ranks, kind, mode, batch_size, noted):
    run = SimpleNamespace(
        world=SimpleNamespace(local_size=ranks),
        device=SimpleNamespace(kind=kind),
        config=SimpleNamespace(run=SimpleNamespace(mode=mode, batch_size=batch_size)),
    )
    note = run_log.ranks_note(run)
    assert (note is not None) == noted
    assert not noted or "one process" in note
