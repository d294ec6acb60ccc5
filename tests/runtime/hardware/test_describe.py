"""Facts of machine and software that the log and checkpoints record."""

import platform
from importlib import metadata

import numpy as np
import tensorflow as tf

from runtime.hardware.device import describe


def test_versions(monkeypatch):
    """Packages that may be absent are listed where they are installed."""
    installed = {"horovod": "0.28.1+stall", "tf_keras": "2.21.0"}

    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    facts = describe()
    assert facts.pop("cores") >= 1
    assert facts == {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        **installed,
    }
