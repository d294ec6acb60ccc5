"""The multi-hot preparation: tables, then the parts of the data set, on several processes."""

import functools
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from config.criteo_multi_hot import CARDINALITIES, HOTNESS
from preproc.criteo.multi_hot.encoder import encoder_files, write_encoder
from preproc.criteo.multi_hot.options import MultiHotOptions
from preproc.criteo.multi_hot.output import OutputJob, OutputPart, PartWriter
from preproc.criteo.multi_hot.source import SourceData, open_source
from preproc.criteo.multi_hot.tables import draw_table, table_file
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging, stage_key
from runtime.parent_process import end_with_parent

TOOL = "preproc.criteo.multi_hot"
_writer: PartWriter | None = None  # of this process


def prepare(options: MultiHotOptions) -> str:
    """Extends the ids of a data set; returns a summary.

    A run that was interrupted is continued by another one with the same flags: finished tables and
    parts are kept.

    Raises:
        ValueError: The data set or a flag does not fit.
        OSError: A file cannot be read or written, or a process was killed.
    """
    began = time.perf_counter()
    source = open_source(options.input)
    cardinalities, hotness = _shape(options, source)
    with Staging(options.output, TOOL, DATA_SET, options.overwrite, [options.input]) as staging:
        tables = staging.folder / "tables"
        tables.mkdir(exist_ok=True)
        job = OutputJob(
            input=options.input.absolute(),
            data=staging.data,
            tables=tables,
            cardinalities=tuple(cardinalities),
            hotness=tuple(hotness),
            takes_modulo=options.cardinalities is not None or source.cardinalities is None,
        )
        states = []
        if source.hotness != hotness:
            states = _draw_tables(staging, job, options.distribution)
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in source.files]
        key = stage_key(options.distribution, *(str(value) for value in vars(job).values()), facts)
        writer = PartWriter(job)
        parts = writer.parts()
        _write_parts(staging, writer, parts, key, options.processes)
        settings = {"distribution": options.distribution, "hotness": list(hotness)}
        metadata = {"preproc.criteo.multi_hot": settings}
        metadata |= write_encoder(writer, options.distribution, states)
        staging.publish(writer.finish(parts, metadata) + encoder_files(staging.data))
    seconds = time.perf_counter() - began
    total = sum(map(len, source.splits.values()))
    return "\n".join(
        [
            *(f"{name}: {len(split):,} samples" for name, split in source.splits.items()),
            f"{sum(hotness)} ids per sample",
            f"{total:,} samples in {seconds:.1f} s, {total / seconds:,.0f} samples/s",
            f"written: {options.output}",
        ]
    )


def _shape(options: MultiHotOptions, source: SourceData) -> tuple[list[int], list[int]]:
    count = len(source.categorical)
    hotness = options.numbers("hotness", count)
    if max(source.hotness, default=1) > 1:
        if hotness not in (None, source.hotness) or options.distribution != "uniform":
            raise ValueError(
                f"--input {options.input} is multi-hot, its ids are not extended: leave --hotness "
                "and --distribution out"
            )
        hotness = source.hotness
    cardinalities = options.numbers("cardinalities", count) or source.cardinalities
    for name, values, default in (
        ("hotness", hotness, HOTNESS),
        ("cardinalities", cardinalities, CARDINALITIES),
    ):
        if values is None and count != len(default):
            raise ValueError(
                f"--{name} is missing: its default is for the {len(default)} categorical features "
                f"of Criteo, and {options.input} has {count}"
            )
    cardinalities = cardinalities or list(CARDINALITIES)
    if max(cardinalities, default=0) > 2**31:
        raise ValueError("--cardinalities: ids are stored as int32, expected at most 2147483648")
    return cardinalities, hotness or list(HOTNESS)


def _draw_tables(staging: Staging, job: OutputJob, distribution: str) -> list[str | None]:
    """Draws the tables in the order of the features: one random stream, as in the reference.

    Returns the state of the generator before each table.
    """
    states, state, key = [], None, stage_key(distribution)
    for feature, (rows, ids) in enumerate(zip(job.cardinalities, job.hotness, strict=True)):
        key = stage_key(key, rows, ids)
        path = table_file(job.tables, feature)
        arguments = (path, rows, ids - 1, distribution, state)
        work = functools.partial(draw_table, *arguments)
        states.append(state)
        state, _ = staging.run(f"table {feature}", key, work, [path])
    return states


def _write_parts(
    staging: Staging, writer: PartWriter, parts: list[OutputPart], key: str, processes: int
) -> None:
    """Writes the parts that are left, each of them a stage.

    Several parts may share a file. A stage of its own, which creates all files before the first
    part, therefore stands for them: after a run with another key, no part is finished.
    """
    stages = {part: (f"{part.file} {part.start}", stage_key(key, *part), ()) for part in parts}

    def create() -> dict:
        staging.forget([*stages.values()])
        writer.create(parts)
        return {}

    staging.run("files", key, create)
    left = [part for part in parts if not staging.is_finished(*stages[part][:2])]
    if len(left) < len(parts):
        print(f"{len(parts) - len(left)} of {len(parts)} parts are finished", flush=True)
    for part in _written(writer, left, processes):
        name, part_key, _ = stages[part]
        staging.run(name, part_key, dict)


def _written(writer: PartWriter, parts: list[OutputPart], processes: int) -> Iterator[OutputPart]:
    if processes == 1 or len(parts) < 2:
        for part in parts:
            writer.write(part)
            yield part
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(parts)), context, _open, (writer.job,))
    try:
        futures = {pool.submit(_write, part): part for part in parts}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool:
        raise OSError(
            "a process of the preparation was killed, as happens when the memory is full: run the "
            "command again to resume, with fewer --processes"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _open(job: OutputJob) -> None:
    global _writer
    end_with_parent()
    _writer = PartWriter(job)


def _write(part: OutputPart) -> None:
    assert _writer is not None
    _writer.write(part)
