"""N ranks equal one rank: outputs, losses and all weights after two steps (equality_worker.py).

One launch has each placement with each kind of input, with one optimizer each; together the
launches, of which the last ones are long, have them with every optimizer (more than once).
"""

import json
import sys

import pytest

from tests.ranks.equality_worker import OPTIMIZERS

LAUNCHES = [("gloo", 2), ("mpi", 2), ("gloo", 3), ("gloo", 4), ("mpi", 3), ("mpi", 4)]
assert len(LAUNCHES) > len(OPTIMIZERS)


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory, run_script):
    """The results of one process, in a file."""
    folder = tmp_path_factory.mktemp("one_rank")
    done = run_script(
        "-m",
        "tests.ranks.equality_worker",
        "--reference",
        folder / "reference.npz",
        env={"RANK_RESULTS": str(folder), "TF_NUM_INTRAOP_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_variants_of_one_rank(one_rank):
    """Whatever the placement, the kind of input, compiled, in low precision."""
    report = json.loads((one_rank / "0.json").read_text())
    assert len(report) > 40
    assert {name: what for name, what in report.items() if what} == {}


@pytest.mark.parametrize(
    ("launcher", "num_ranks"),
    [LAUNCHES[0], *(pytest.param(*launch, marks=pytest.mark.long) for launch in LAUNCHES[1:])],
)
def test_ranks(one_rank, run_ranks, quick_python, launcher, num_ranks):
    run = run_ranks(
        num_ranks,
        "tests.ranks.equality_worker",
        *("--reference", one_rank / "reference.npz"),
        *("--turn", LAUNCHES.index((launcher, num_ranks))),
        launcher=launcher,
        timeout=500,
        python=quick_python if launcher == "gloo" else sys.executable,
    )
    for rank, report in enumerate(run.results):
        wrong = {name: what for name, what in report.items() if what}
        assert wrong == {}, f"rank {rank}"
        assert len(report) > 40
