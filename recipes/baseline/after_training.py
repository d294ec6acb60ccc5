"""Comparison with simple models after a training (`--baseline`), and what it needs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

RESULTS, PICTURE = "baseline.json", "baseline.png"
# Package -> its name in the package index.
_PACKAGES = {"sklearn": "scikit-learn", "lightgbm": "lightgbm"}


def check_packages() -> None:
    """Raises ValueError if a package is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(_PACKAGES[name] for name in missing)
        raise ValueError(
            "the baseline needs packages that are not installed: install them (pip install "
            f"{names})"
        )


def compare_after_training(
    spec_file: Path, checkpoint: Path, output: Path, recipe: str
) -> list[Path]:
    """Compares a checkpoint with simple models (`--baseline`); returns the picture.

    The process runs on the CPU, because the training holds the memory of a GPU. A failure does not
    end the training.
    """
    flags = ["--dataset_path", spec_file.parent, "--feature_spec", spec_file.name]
    flags += ["--checkpoint_path", checkpoint, "--output", output, "--recipe", recipe]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "recipes.baseline", *map(str, flags)]
    sys.stdout.flush()
    if subprocess.run(command, env=environment, check=False).returncode:
        print("note: --baseline failed; the checkpoint is complete", flush=True)
        return []
    return [output / PICTURE]
