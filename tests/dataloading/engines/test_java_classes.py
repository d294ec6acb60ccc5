"""Archive of Spark's Java classes: written once, mapped by each session."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from pyspark import SparkContext

from dataloading.engines import java_classes, spark_session
from dataloading.engines.spark_session import Session, SessionOptions

pytestmark = pytest.mark.engines("pyspark")
PYSPARK_FILE = java_classes.pyspark.__file__
OPTIONS = SessionOptions("local[1]", ("spark.driver.extraJavaOptions=-Dgiven=1",), 1, 3 << 30)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(java_classes.pyspark, "__file__", str(tmp_path / "__init__.py"))
    path = java_classes.archive()
    if path is None:
        pytest.skip("needs Java 13 or later")
    return path


def is_mapped(scratch) -> bool:
    """Starts and ends a session; returns whether its Java had mapped an archive."""
    with Session(OPTIONS, scratch, "test") as session:
        assert session._spark.range(3).count() == 3
        java = session._spark.sparkContext._jvm.java.lang.System
        assert java.getProperty("given") == "1"
        maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
    return "classes-" in maps


@pytest.mark.long
def test_start_with_archive(archive, tmp_path, monkeypatch):
    written = Path(PYSPARK_FILE).parent / archive.name
    if not written.exists():
        pytest.skip("needs the archive that `make engines` writes")
    assert not is_mapped(tmp_path)
    monkeypatch.setattr(java_classes.pyspark, "__file__", PYSPARK_FILE)
    assert is_mapped(tmp_path)


@pytest.mark.long
def test_writing(archive, tmp_path):
    code = (
        "import sys, pyspark; from dataloading.engines import write_java_classes as w;"
        f"pyspark.__file__ = {java_classes.pyspark.__file__!r}; sys.exit(w.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert [*tmp_path.iterdir()] == [archive]
    assert is_mapped(tmp_path)


@pytest.mark.parametrize("release", [None, 'JAVA_VERSION="1.8.0_392"', 'JAVA_VERSION="11.0.2"'])
def test_java_without_archives(release, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    if release is not None:
        (tmp_path / "release").write_text(release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java_classes.pyspark, "__file__", str(tmp_path / "__init__.py"))
    settings = spark_session.settings(OPTIONS, tmp_path, "test")
    assert settings["spark.driver.extraJavaOptions"] == "-Dgiven=1"
