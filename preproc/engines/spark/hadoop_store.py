"""Raw files of any file system that Spark knows, such as hdfs:// and s3a://."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from preproc.engines.spark.session import literal
from preproc.sources.file_store import FileStore


def is_uri(path: str) -> bool:
    """Returns whether a path names its file system."""
    return "://" in path


def spark_path(path: str) -> str:
    """Returns a path or a URI for Spark to read, without patterns."""
    return path if is_uri(path) else literal(Path(path))


class HadoopStore(FileStore):
    """Files of a scheme, read by Hadoop; paths without one are those of this machine."""

    def __init__(self, session: SparkSession):
        self._session = session

    def is_folder(self, path: str) -> bool:
        if not is_uri(path):
            return super().is_folder(path)
        files, hadoop_path = self._opened(path)
        if not files.exists(hadoop_path):
            raise ValueError(f"expected a file or a folder, got {path}, which does not exist")
        return files.getFileStatus(hadoop_path).isDirectory()

    def files(self, folder: str) -> list[str]:
        if not is_uri(folder):
            return super().files(folder)
        files, hadoop_path = self._opened(folder)
        base = files.getFileStatus(hadoop_path).getPath().toString()
        listed, result = files.listFiles(hadoop_path, True), []
        while listed.hasNext():
            path = listed.next().getPath().toString()
            result.append(folder.rstrip("/") + path[len(base.rstrip("/")) :])
        return result

    def start(self, path: str, num_bytes: int) -> bytes:
        if not is_uri(path):
            return super().start(path, num_bytes)
        files, hadoop_path = self._opened(path)
        size = min(num_bytes, files.getFileStatus(hadoop_path).getLen())
        stream = files.open(hadoop_path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, size))
        finally:
            stream.close()

    def schema(self, path: str) -> pa.Schema:
        if not is_uri(path):
            return super().schema(path)
        return to_arrow_schema(self._session.read.parquet(spark_path(path)).schema)

    @property
    def _jvm(self):
        return self._session.sparkContext._jvm

    def _opened(self, path: str) -> tuple:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        configuration = self._session.sparkContext._jsc.hadoopConfiguration()
        return hadoop_path.getFileSystem(configuration), hadoop_path
