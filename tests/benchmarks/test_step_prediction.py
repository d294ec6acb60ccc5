"""The benchmark of the predicted step time: its page on tiny sizes."""

import subprocess
import sys

import pytest

from benchmarks.step_prediction import __main__ as step_prediction


def test_sides():
    one, two = step_prediction.sides_of([1, 2], 2)
    assert (one.name, one.num_ranks, one.threads) == ("1 rank x 2 threads", 1, 2)
    assert (two.name, two.num_ranks, two.threads) == ("2 ranks x 1 thread", 2, 1)


def test_uneven_threads(capsys):
    with pytest.raises(SystemExit):
        step_prediction.parse(["--ranks=2", "--threads=3"])
    assert "--ranks 2 cannot share --threads 3 evenly" in capsys.readouterr().err


@pytest.mark.long
def test_page(tmp_path, root):
    page = tmp_path / "page.md"
    flags = ["--quick", "--ranks=1", "--precisions=bfloat16", "--output", str(page)]
    command = [sys.executable, "-m", "benchmarks.step_prediction", *flags]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    side = "| batch 64, bfloat16 | 1 rank x 2 threads |"
    assert text.count(side) == 5  # steps, two prefixes, parts, rates
    for prefix in ("forward", "forward and backward"):
        assert f"{side} {prefix} |" in text
    assert "batch 64, bfloat16, 1 rank x 2 threads: predicted " in text
