"""Packs the built library into a wheel: for any Python 3, for this platform and one TensorFlow."""

import json
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

BUILD = Path("tensorflow_dot_based_interact/python/ops/_dot_based_interact_ops.json")
for file in (BUILD.with_suffix(".so"), BUILD):
    if not file.is_file():
        sys.exit(f"{file} is not built: run `make` in {Path.cwd()} first")


class PlatformWheel(bdist_wheel):
    """The library is loaded by TensorFlow, so that one wheel does for every Python version."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """Marks the wheel as one of a platform: it contains a library."""

    def has_ext_modules(self):
        return True


setup(
    name="tensorflow-dot-based-interact",
    version=f"1.0.0+tf{json.loads(BUILD.read_text())['tensorflow']}",
    description="DLRM's dot interaction as a fused TensorFlow op for CPU and CUDA",
    packages=[
        "tensorflow_dot_based_interact",
        "tensorflow_dot_based_interact.python",
        "tensorflow_dot_based_interact.python.ops",
    ],
    package_data={"tensorflow_dot_based_interact.python.ops": [BUILD.name, BUILD.stem + ".so"]},
    python_requires=">=3.9",
    distclass=PlatformDistribution,
    cmdclass={"bdist_wheel": PlatformWheel},
)
