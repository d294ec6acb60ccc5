"""The multi-hot preparation: tables, then the parts of the data set, by several threads."""

import functools
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from config.criteo_multi_hot import CARDINALITIES, HOTNESS
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec, smallest_id_dtype
from preproc.criteo.multi_hot.id_tables import Tables, draw_table, table_file
from preproc.criteo.multi_hot.options import MultiHotOptions
from preproc.criteo.multi_hot.output import PartWriter
from preproc.criteo.multi_hot.source import SourceData, open_source
from preproc.encoding import encoder_folder
from preproc.encoding.encodings import IdEncoding
from preproc.encoding.extension import Extension
from runtime.files.outputs import DATA_SET, list_files
from runtime.files.staging import Staging, stage_key

TOOL = "preproc.criteo.multi_hot"


def prepare(options: MultiHotOptions) -> str:
    """Extends the ids of a data set; returns a summary.

    A run that was interrupted is continued by another one with the same flags: finished tables and
    parts are kept.

    Raises:
        ValueError: The data set or a flag does not fit.
        OSError: A file cannot be read or written.
    """
    began = time.perf_counter()
    source = open_source(options.input)
    cardinalities, hotness = _shape(options, source)
    with Staging(options.output, TOOL, DATA_SET, options.overwrite, [options.input]) as staging:
        states, tables = [], None
        if source.hotness != hotness:
            tables = Tables(staging.part("tables"), cardinalities, hotness)
            states = _draw_tables(staging, tables, options.distribution)
        takes_modulo = options.cardinalities is not None or source.cardinalities is None
        writer = PartWriter(source, staging.data, cardinalities, hotness, takes_modulo, tables)
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in source.files]
        settings = {"distribution": options.distribution, "hotness": list(hotness)}
        key = stage_key(settings, cardinalities, takes_modulo, facts)
        spec = writer.feature_spec({TOOL: settings})
        _write_parts(staging, writer, spec, key, options.processes)
        spec.metadata.update(_write_encoder(writer, options, states))
        spec.validate_files()
        spec.to_yaml(staging.data / SPEC_FILE)
        files = [chunk.files[0] for chunks in spec.source_spec.values() for chunk in chunks]
        encoder = [n for n in list_files(staging.data) if n.startswith(f"{ENCODER_FOLDER}/")]
        staging.publish([Path(file) for file in (SPEC_FILE, *files, *encoder)])
    seconds = time.perf_counter() - began
    sizes = {split: source.num_samples(split) for split in source.splits}
    total = sum(sizes.values())
    return "\n".join(
        [
            *(f"{split}: {num_samples:,} samples" for split, num_samples in sizes.items()),
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


def _draw_tables(staging: Staging, tables: Tables, distribution: str) -> list[str | None]:
    """Draws the tables in the order of the features: one random stream, as in the reference.

    Returns the state of the generator before each table.
    """
    states, state, key = [], None, stage_key(distribution)
    for feature, (rows, width) in enumerate(tables.shapes):
        key = stage_key(key, rows, width)
        path = table_file(tables.folder, feature)
        work = functools.partial(draw_table, path, rows, width, distribution, state)
        states.append(state)
        state, _ = staging.run(f"table {feature}", key, work, [path])
    return states


def _write_parts(
    staging: Staging, writer: PartWriter, spec: FeatureSpec, key: str, num_threads: int
) -> None:
    """Writes the parts that are left, each of them a stage.

    Several parts may share a file. A stage of its own, which creates all files before the first
    part, therefore stands for them: after a run with another key, no part is finished.
    """
    parts = writer.parts(spec)
    stages = {part: (f"{part.file} {part.start}", stage_key(key, *part), ()) for part in parts}

    def create() -> dict:
        staging.forget([*stages.values()])
        writer.create(spec)
        return {}

    staging.run("files", key, create)
    left = [part for part in parts if not staging.is_finished(*stages[part][:2])]
    if len(left) < len(parts):
        print(f"{len(parts) - len(left)} of {len(parts)} parts are finished", flush=True)
    pool = ThreadPoolExecutor(num_threads)
    try:
        futures = {pool.submit(writer.write, spec, part): part for part in left}
        for future in as_completed(futures):
            future.result()
            name, part_key, _ = stages[futures[future]]
            staging.run(name, part_key, dict)
    finally:
        pool.shutdown(cancel_futures=True)


def _write_encoder(
    writer: PartWriter, options: MultiHotOptions, states: Sequence[str | None]
) -> dict[str, str]:
    """Writes that of the source, whose ids are extended, if it has one; returns its digest as
    metadata.

    Args:
        states: of the generator before the table of each feature; none if ids are not extended.
    """
    origin, target = options.input / ENCODER_FOLDER, writer.data / ENCODER_FOLDER
    if not origin.is_dir():
        return {}
    shutil.copytree(origin, target, dirs_exist_ok=True)
    content = encoder_folder.read(origin, has_values=False)
    if not states and not writer.takes_modulo:
        return {ENCODER_FOLDER: content.digest}
    places = {name: i for i, name in enumerate(writer.source.categorical)}
    features = []
    for encoding in content.features:
        if isinstance(encoding, IdEncoding) and encoding.name in places:
            place = places[encoding.name]
            cardinality, hotness = writer.cardinalities[place], writer.hotness[place]
            extension = Extension(
                cardinality, hotness - 1, options.distribution, states[place] if states else None
            )
            dtype = smallest_id_dtype(cardinality).name
            encoding = replace(encoding, hotness=hotness, dtype=dtype, extension=extension)
        features.append(encoding)
    digest = encoder_folder.complete(target, features, content.missing_values, content.profile)
    return {ENCODER_FOLDER: digest}
