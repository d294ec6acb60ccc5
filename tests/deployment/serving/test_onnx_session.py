import os
import subprocess
import sys

import numpy as np

from tests.deployment.serving.made_models import request, write_clicks


def test_disabled_telemetry(tmp_path, root):
    """onnxruntime and OpenVINO write no files to the home folder, such as events to send."""
    for precision in ("fp32", "bf16"):
        write_clicks(tmp_path / precision, precision=precision)
    (home := tmp_path / "home").mkdir()
    np.savez(tmp_path / "rows.npz", **request(3))
    program = (
        "import sys, numpy as np\n"
        "from deployment.serving.scorer import RequestScorer\n"
        "for precision in ('fp32', 'bf16'):\n"
        "    scores = RequestScorer(precision).score(dict(np.load('rows.npz')))\n"
        "    assert scores.shape == (3, 1)\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=kept | {"HOME": str(home), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
