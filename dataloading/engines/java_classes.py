"""Archive of Spark's Java classes: loading them is a quarter of the time of a small run.

Java 13 and later write the classes of a process to a file when it ends, and map that file into
memory at the next start (application class-data sharing, JEP 350). `write_java_classes` leaves it
next to PySpark.
"""

import os
import re
import shutil
import zlib
from pathlib import Path

import pyspark

_FIRST_JAVA = 13
# Without it, Java lists on the standard output what it leaves out of an archive.
SILENT = "-Xlog:disable"


def archive() -> Path | None:
    """Returns the archive for the Java that PySpark starts; None if that Java has no archives."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return None
    java = Path(java).resolve()
    try:
        release = (java.parents[1] / "release").read_text()
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    if version is None or int(version[1]) < _FIRST_JAVA:
        return None
    # Another Java would refuse it.
    key = zlib.crc32(f"{java}\n{release}".encode())
    return Path(pyspark.__file__).parent / f"classes-{key:08x}.jsa"


def options() -> str:
    """Returns options of Java that map the archive; empty without an archive."""
    path = archive()
    return f'"-XX:SharedArchiveFile={path}" {SILENT}' if path and path.exists() else ""
