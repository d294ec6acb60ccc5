"""Packs the built library of an op into a wheel for any Python 3, one platform, one TensorFlow."""

import json
import sys
from pathlib import Path

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """The library is loaded by TensorFlow, so that one wheel does for every Python version."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """Marks the wheel as one of a platform: it contains a library."""

    def has_ext_modules(self):
        return True


def pack(name: str, description: str, packages: list[str], build: Path) -> None:
    """Calls setuptools.

    Args:
        build: File in the last of `packages` that the build writes next to the library.
    """
    for file in (build.with_suffix(".so"), build):
        if not file.is_file():
            sys.exit(f"{file} is not built: run `make` in {Path.cwd()} first")
    tensorflow = json.loads(build.read_text())["tensorflow"]
    setup(
        name=name,
        version=f"1.0.0+tf{tensorflow}" if tensorflow else "1.0.0",
        description=description,
        packages=packages,
        package_data={packages[-1]: [build.name, build.stem + ".so"]},
        python_requires=">=3.9",
        distclass=PlatformDistribution,
        cmdclass={"bdist_wheel": PlatformWheel},
    )
