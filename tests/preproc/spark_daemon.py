"""`pyspark.daemon` of the tests, started by Spark.

Each task would read the directories of archives on sys.path again, Spark's JAR file of 5,000 files
among them, and each worker would import Arrow and pandas.
"""

import sys

import pandas  # noqa: F401
import pyarrow.dataset  # noqa: F401
import pyspark.sql.pandas.types  # noqa: F401
from pyspark.daemon import manager

sys.path[:] = [path for path in sys.path if not path.endswith((".jar", ".zip"))]
sys.path_importer_cache.clear()
manager()
