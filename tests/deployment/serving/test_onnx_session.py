import os
import subprocess
import sys

import numpy as np
import pytest

from deployment.serving import interface as interfaces
from tests.deployment.serving.made_models import request, write_clicks


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_disabled_telemetry(tmp_path, root, precision):
    """onnxruntime and OpenVINO write no files to the home folder, such as events to send."""
    folder, home = write_clicks(tmp_path / "clicks/1"), tmp_path / "home"
    home.mkdir()
    interfaces.write(interfaces.read(folder)._replace(precision=precision), folder)
    np.savez(tmp_path / "rows.npz", **request(3))
    program = (
        "import sys, numpy as np\n"
        "from deployment.serving.scorer import RequestScorer\n"
        "scores = RequestScorer(sys.argv[1]).score(dict(np.load(sys.argv[2])))\n"
        "assert scores.shape == (3, 1)\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", program, folder, tmp_path / "rows.npz"],
        cwd=root,
        env=kept | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.iterdir()) == []
