"""All cases of a run's start: what the flags name, and what the folder of checkpoints holds."""

import numpy as np
import pytest
from distributed_embeddings.collectives import World

from runtime.checkpoint.resume import CASES, Action, Request, find
from tests.runtime.checkpoint.array_weights import ArrayWeight, save_on_ranks


def saved(root, finished, step):
    weights = [ArrayWeight("w", np.ones((2, 2)))]
    return save_on_ranks(root, 1, lambda rank: weights, step, state={"finished": finished})


@pytest.mark.parametrize(
    ("case", "content"),
    [(case, n) for case in CASES for n in range(3) if n or case != "a checkpoint in it"],
)
def test_start(tmp_path, case, content):
    """`content` is the column of the table. A new training starts from weights of another folder,
    and from those that are set aside."""
    save, elsewhere = tmp_path / "model", saved(tmp_path / "other", True, 7)
    if content:
        for step in (1, 2):
            newest = saved(save, content == 2 and step == 2, step)
    inside = save / "00001-step-1"
    request = {
        "nothing, or weights": Request(str(inside if content == 2 else elsewhere)),
        "the same, replacing": Request(replaces=True),
        "auto": Request(resume="auto"),
        "a checkpoint in it": Request(resume=str(inside)),
        "a checkpoint elsewhere": Request(resume=str(elsewhere)),
    }[case]._replace(save=str(save))
    action = CASES[case][content]
    if action is Action.REFUSE:
        with pytest.raises(ValueError, match="of a training that has not ended .00002-step-2.: re"):
            find(request, World(), 60.0)
        return
    start = find(request, World(), 60.0)
    start.release()
    assert start.folder.root == save and start.resumes is (action is Action.RESUME)
    earlier = save / "earlier-1"
    expected = {
        "nothing, or weights": earlier / inside.name if content == 2 else elsewhere,
        "the same, replacing": None,
        "auto": newest if content else None,
        "a checkpoint in it": inside,
        "a checkpoint elsewhere": elsewhere,
    }[case]
    assert start.path == expected
    assert start.is_newest is (case == "auto" and content > 0)
    names = [path.name for path in sorted(save.glob("0*"))]
    if action is Action.SET_ASIDE:
        assert names == [] and start.note.endswith(f"were moved to {earlier}")
        assert (earlier / newest.name).is_dir()
    else:
        assert names == ["00001-step-1", "00002-step-2"][: 2 * bool(content)]


def test_optional_start(tmp_path):
    """NVIDIA's SIM: a new training begins where --load_checkpoint_path has no checkpoint."""
    place = tmp_path / "model"
    request = Request(resume=str(place), is_optional=True)
    assert find(request, World(), 60.0) == (None, None, False, False, "")
    path = saved(place, False, 1)
    assert find(request, World(), 60.0) == (None, path, True, False, "")
