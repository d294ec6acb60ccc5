"""Raw files of a run as all workers can read any part of them: local and not compressed."""

import contextlib
import functools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from dataloading.table_input.files import (
    CSV,
    RawChunk,
    TableSource,
    existing_file,
    file_blocks,
    place,
)
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.spark import plan
from dataloading.transcode.spark.jobs import SparkJobs
from dataloading.transcode.spark.plan import FileRows, SourceFile
from dataloading.transcode.spark.run_folder import RunFolder
from runtime.files.outputs import output_file

_COMPRESSED = (".gz", ".bz2", ".lz4", ".zst")  # as `pa.input_stream` detects it
_COPIES = 8  # remote files that are copied at a time
_COPIED_BYTES = 1 << 22


def copy_folder(jobs: SparkJobs, source: str, spec_file: str, target: Path) -> None:
    """Copies a feature spec and the files that it names from a file system that Spark knows."""
    source = source.rstrip("/")
    copy_file(jobs, f"{source}/{spec_file}", target / spec_file)
    spec = RawSpec.from_yaml(target / spec_file)
    base = f"{source}/{spec_file}".rpartition("/")[0]
    files = {file for chunks in spec.sources.values() for chunk in chunks for file in chunk.files}
    with ThreadPoolExecutor(_COPIES) as pool:
        copies = [
            pool.submit(copy_file, jobs, f"{base}/{file}", spec.base_directory / file)
            for file in sorted(files)
        ]
        for copy in copies:
            copy.result()


def copy_file(jobs: SparkJobs, source: str, target: Path) -> None:
    """Copies a file, unless an earlier run did and it has not changed since."""
    status = json.dumps(jobs.modified(source))
    record = target.with_name(f"{target.name}.copied")
    with contextlib.suppress(FileNotFoundError):
        if record.read_text() == status and target.exists():
            return
    jobs.copy(source, target)
    record.write_text(status)


def rows_of_splits(
    jobs: SparkJobs, folder: RunFolder, chunk_size: int, spec: TableSource
) -> dict[str, list[list[FileRows]]]:
    """Returns for each split the rows of the files of each chunk, blocks of at most `chunk_size`.

    Raises:
        ValueError: a file does not exist or cannot be read.
    """
    files = [
        (existing_file(spec, split, file), place(spec, split, file), chunk)
        for split, chunks in spec.sources.items()
        for chunk in chunks
        for file in chunk.files
    ]
    rows = iter(rows_of_files(jobs, folder, chunk_size, files))
    return {
        split: [[next(rows) for _ in chunk.files] for chunk in chunks]
        for split, chunks in spec.sources.items()
    }


def rows_of_files(
    jobs: SparkJobs, folder: RunFolder, chunk_size: int, files: list[tuple[Path, str, RawChunk]]
) -> list[FileRows]:
    """Returns the rows of files: path, name in messages, and format of each."""
    # The absolute path: tasks of Spark may have another working folder.
    absolute = [(path.absolute(), where, chunk) for path, where, chunk in files]
    plain = _plain(jobs, folder, chunk_size, absolute)
    sources = [
        SourceFile(str(path), where, chunk.type, chunk.header)
        for path, (_, where, chunk) in zip(plain, files, strict=True)
    ]
    ranges = plan.ranges(sources)
    work = functools.partial(plan.count_lines, tuple(sources))
    counted = jobs.map(folder, "rows of files", work, ranges)
    result = plan.file_rows(sources, list(zip(ranges, counted, strict=True)), chunk_size)
    for rows, (path, where, chunk) in zip(result, files, strict=True):
        if not rows.blocks.any():  # empty, or not readable, which is an error here
            next(file_blocks(path, chunk, chunk_size, where), None)
    return result


def _plain(
    jobs: SparkJobs, folder: RunFolder, chunk_size: int, files: list[tuple[Path, str, RawChunk]]
) -> list[Path]:
    """Returns files that are not compressed: the same ones, or copies."""
    copies = {
        number: (path, folder.path / "plain" / f"{number}.csv")
        for number, (path, _, chunk) in enumerate(files)
        if chunk.type == CSV and path.name.endswith(_COMPRESSED)
    }
    are_whole = jobs.map(folder, "plain files", _decompress, [*copies.values()])
    for number, is_whole in zip(copies, are_whole, strict=True):
        path, where, chunk = files[number]
        if not is_whole:
            for _ in file_blocks(path, chunk, chunk_size, where):
                pass  # raises the error with the row before it
    return [copies.get(number, (path, path))[1] for number, (path, *_) in enumerate(files)]


def _decompress(paths: tuple[Path, Path]) -> bool:
    """Writes a copy; returns whether the file can be decompressed."""
    source, target = paths
    if target.exists():  # whole, by an earlier run
        return True
    try:
        stream = pa.input_stream(str(source))
        first = stream.read(_COPIED_BYTES)
    except OSError:
        return False
    with stream, output_file(target) as copy:
        data = first
        while data:
            copy.write(data)
            try:
                data = stream.read(_COPIED_BYTES)
            except OSError:
                return False
    return True
