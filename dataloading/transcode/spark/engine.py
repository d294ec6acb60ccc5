"""A run of transcode with Spark: the same files as DuckDB's, by tasks on parts of the rows."""

import argparse
import contextlib
import functools
import os
import shutil
from pathlib import Path

from dataloading.engines.spark_session import SessionOptions
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.table_input.files import RawChunk, file_blocks
from dataloading.transcode.arguments import TOOL, parse_bytes
from dataloading.transcode.encode.vocabulary import Vocabularies
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.infer import ColumnFacts, facts_of
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.spark import plan, sources
from dataloading.transcode.spark.jobs import COMMAND, SparkJobs
from dataloading.transcode.spark.run import SparkRun, report
from dataloading.transcode.spark.run_folder import RunFolder
from dataloading.transcode.split import SplitRequest
from dataloading.transcode.transcoding import check_metadata, write_spec
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging, stage_key

_DEFAULT_MEMORY = "4GB"


class SparkTranscoder:
    """See `rows.DuckDBEngine`. The staging folder keeps what a killed run has done."""

    def __init__(self, flags: argparse.Namespace):
        self._flags = flags
        self._options = SessionOptions(
            flags.master,
            tuple(flags.spark_conf or ()),
            len(os.sched_getaffinity(0)),
            parse_bytes(flags.memory_limit or _DEFAULT_MEMORY),
        )

    def __enter__(self):
        output = Path(self._flags.output)
        with contextlib.ExitStack() as stack:
            staging = Staging(output, TOOL, DATA_SET, self._flags.overwrite)
            self._staging = stack.enter_context(staging)
            name, scratch = f"transcode: {output}", self._staging.scratch
            jobs = SparkJobs(self._options, scratch, name, scratch, command=COMMAND)
            self._jobs = stack.enter_context(jobs)
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *exception):
        self._opened.__exit__(*exception)

    def input_path(self, path: str) -> Path:
        """Returns a path that all workers see: the same one, or that of a copy."""
        if "://" not in path:
            return Path(path)
        report(f"copying {path}")
        folder = self._staging.folder / "input" / stage_key(path)[:16]
        name = path.rstrip("/").rpartition("/")[2]
        if name.endswith((".csv", ".tsv", ".gz", ".parquet")):
            sources.copy_file(self._jobs, path, folder / name)
            return folder / name
        sources.copy_folder(self._jobs, path, self._flags.feature_spec_in, folder)
        return folder

    def scan(self, path: Path, chunk: RawChunk) -> dict[str, ColumnFacts]:
        report("inferring columns")
        folder = self._folder("scan", chunk, _status(path))
        files, chunk_size = [(path, str(path), chunk)], self._flags.chunk_size
        (rows,) = sources.rows_of_files(self._jobs, folder, chunk_size, files)
        work = functools.partial(_facts, rows.source, chunk, chunk_size, str(path))
        parts = self._jobs.map(folder, "facts", work, plan.slices(rows))
        result = facts_of((), chunk.features)
        for facts in parts:
            for name, column in facts.items():
                result[name].merge(column)
        return result

    def transcode(
        self, spec: RawSpec, encoding: Encoding, split: SplitRequest | None
    ) -> FeatureSpec:
        check_metadata(spec)
        flags = self._flags
        files = [
            _status(spec.base_directory / file)
            for chunks in spec.sources.values()
            for chunk in chunks
            for file in chunk.files
        ]
        known = [_status(path) for path in encoding.vocabularies.values()]
        options = (flags.chunk_size, flags.feature_spec_out)
        folder = self._folder("run", spec, encoding, split, *options, files, known)
        limit = self._options.memory_limit_bytes
        duckdb = Vocabularies(
            self._staging.scratch / "duckdb",
            limit,
            reserved_bytes=limit - COMMAND.duckdb_bytes(limit),
        )
        data = self._staging.data
        run = SparkRun(self._jobs, folder, data, duckdb, spec, encoding, split, flags.chunk_size)
        write_spec(run.finish(), spec.is_interactions, data / flags.feature_spec_out)
        self._staging.publish()
        return FeatureSpec.from_yaml(Path(flags.output) / flags.feature_spec_out)

    def _folder(self, kind: str, *depends_on) -> RunFolder:
        path = self._staging.folder / kind
        # What lies there is of another run; the data set is of the run of the whole data.
        stale = [path, self._staging.data] if kind == "run" else [path]

        def create() -> dict:
            for folder in stale:
                shutil.rmtree(folder, ignore_errors=True)
            self._staging.data.mkdir(exist_ok=True)
            return {}

        key = stage_key(kind, *map(repr, depends_on))
        _, is_new = self._staging.run(kind, key, create, stale)
        if kind == "run" and not is_new:
            report(f"resuming in {self._staging.folder}")
        shutil.rmtree(path / "failed", ignore_errors=True)
        (path / "results").mkdir(parents=True, exist_ok=True)
        return RunFolder(path, self._jobs.token, self._jobs.is_cluster)


def _facts(source, chunk: RawChunk, chunk_size: int, where: str, part) -> dict[str, ColumnFacts]:
    return facts_of(file_blocks(Path(source.path), chunk, chunk_size, where, part), chunk.features)


def _status(path: Path) -> tuple[str, int, int]:
    """Returns path, size and time of change of a file; 0 for both where it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return str(path), 0, 0  # what reads it reports that
    return str(path), status.st_size, status.st_mtime_ns
