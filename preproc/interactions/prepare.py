"""The preparation in titled stages: raw files, interactions, held-out ones, negatives."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataloading.interactions.unseen_items import TooFewUnseen, draw_unseen
from dataloading.spec.data_set_files import ENCODER_FOLDER
from dataloading.spec.feature_spec import TEST, VALIDATION
from preproc.checks.report import Report
from preproc.checks.short_users import short_users
from preproc.encoding.encoder import Encoder
from preproc.engines.open_engine import open_engine
from preproc.events.numbering import save_encoder
from preproc.interactions.data_set import (
    CandidateLists,
    touched_keys,
    write_candidate_lists,
    write_spec,
    write_train,
)
from preproc.interactions.options import InteractionLogOptions
from preproc.interactions.paper_files import hold_out, read_paper
from preproc.interactions.ratings import FIRST_ID, number_ratings, without_last
from preproc.interactions.source_files import DAT, NCF
from runtime.files.outputs import DATA_SET
from runtime.files.staging import Staging

TOOL = "preproc.interactions"
# Fixed memory of the process while it draws negatives: Python, NumPy, Arrow, DuckDB's code
# and one block of draws; measured.
_BASE_BYTES = 320 << 20
_BYTES_PER_INTERACTION = 16
# Streams of random numbers, apart from each other.
_STREAMS = {TEST: 0, VALIDATION: 1}
_HOLD_OUT_STREAM = 2


@dataclass(frozen=True)
class _Interactions:
    """Interactions without the training rows, which are written already."""

    num_train: int
    # split -> its users and positive items, [n] each
    held_out: dict[str, tuple[np.ndarray, np.ndarray]]
    stored: dict[str, np.ndarray]  # split -> the negatives that came with it, [n, k]
    valid_negative: int
    metadata: dict
    words: dict[str, str]  # name of a count -> words after it, for people; or none
    counts: dict[str, int]
    report: Report | None = None


def prepare(options: InteractionLogOptions) -> str:
    """Makes the data set `options.output`, under that name only when it is whole.

    Returns:
        a few lines on what was made, for people.

    Raises:
        ValueError: options or input are wrong, or the memory limit is too small.
        OSError: no space left, among others.
    """
    started = time.perf_counter()
    output = (options.output, TOOL, DATA_SET, options.overwrite, options.source.files)
    with Staging(*output, resumes=False) as staging:
        folder, scratch = staging.data, staging.temp_folder(options.temp_dir)
        read = _read_paper if options.source.form == NCF else _read_log
        log = read(options, folder, scratch)
        counts = log.counts
        _say(
            f"kept {counts['interactions']:,} interactions of {counts['users']:,} users and "
            f"{counts['items']:,} items"
        )
        candidates = _candidate_lists(options, log, folder)
        for split, lists in candidates.items():
            write_candidate_lists(folder, split, lists)
        metadata = _metadata(options, log, candidates)
        write_spec(folder, (counts["users"], counts["items"]), candidates, metadata)
        staging.publish()
    elapsed_s = time.perf_counter() - started
    lines = [f"{options.output} is ready, {elapsed_s:.1f} s"]
    lines += [
        f"  {name.replace('_', ' ')}: {value:,}{log.words.get(name, '')}"
        for name, value in counts.items()
    ]
    lines.append(f"  train: {log.num_train:,} interactions")
    lines += [
        f"  {split}: {len(lists.users):,} candidate lists of {lists.rows_per_list} rows"
        for split, lists in candidates.items()
    ]
    if log.report is not None:
        lines.append(log.report.text())
    return "\n".join(lines)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


# Raw files -> training rows and held-out interactions


def _read_log(options: InteractionLogOptions, folder: Path, scratch: Path) -> _Interactions:
    with open_engine(options.engine, scratch, **options.engine_settings()) as engine:
        numbered, counts, ties = number_ratings(engine, options, scratch)
        short = short_users(
            "--min_ratings",
            options.min_ratings,
            (numbered.num_users_before, counts["users"]),
            (numbered.num_events_before, counts["interactions"]),
        )
        report = Report((ties.finding(), short))
        report.refuse_warnings(options.strict)
        report.write(folder)
        splits = (TEST, VALIDATION) if options.validation else (TEST,)
        _check_memory(options, counts["interactions"], counts["users"] * len(splits))
        last = np.zeros((counts["users"], len(splits)), np.int32)
        num_train = write_train(
            folder, without_last(numbered.pairs(), numbered.num_of_users(), last)
        )
    words = {"users_left_out": f" (fewer items than --min_ratings {options.min_ratings})"}
    for kind in numbered.vocabularies:
        sort = "integers" if numbered.are_numbers(kind) else "texts by UTF-8 bytes"
        words[f"{kind}s"] = f" (ids in the order of the {sort})"
    columns = {"user": options.user_column, "item": options.item_column}
    if options.source.form == DAT:
        columns = {kind: kind for kind in columns}
    vocabularies = {kind: (columns[kind], numbered.vocabularies[kind]) for kind in columns}
    digest = save_encoder(folder, vocabularies, FIRST_ID, missing=options.missing_values)
    users = np.arange(counts["users"], dtype=np.int32)
    return _Interactions(
        num_train=num_train,
        held_out={name: (users, last[:, i]) for i, name in enumerate(splits)},
        stored={},
        valid_negative=options.valid_negative,
        metadata={
            "min_ratings": options.min_ratings,
            **({} if options.min_rating is None else {"min_rating": options.min_rating}),
            ENCODER_FOLDER: digest,
        },
        words=words,
        counts=counts,
        report=report,
    )


def _check_memory(options: InteractionLogOptions, num_interactions: int, num_lists: int) -> None:
    drawn_bytes = num_lists * options.valid_negative * np.dtype(np.int32).itemsize
    least = _BASE_BYTES + num_interactions * _BYTES_PER_INTERACTION + drawn_bytes
    if options.memory_limit_bytes < least:
        raise ValueError(
            f"{num_interactions:,} interactions and {options.valid_negative} negatives for each of "
            f"{num_lists:,} candidate lists need a --memory_limit of {-(-least >> 20)} MiB or "
            f"more, got {options.memory_limit_bytes >> 20} MiB; a smaller --valid_negative helps"
        )


def _read_paper(options: InteractionLogOptions, folder: Path, scratch: Path) -> _Interactions:
    data = read_paper(*options.source.files)
    stored = data.test_negatives.shape[1]
    train = np.ones(len(data.train_users), bool)
    held_out = {TEST: (data.test_users, data.test_items)}
    metadata = {}
    if options.validation:
        users, rows = hold_out(data, [options.seed, _HOLD_OUT_STREAM])
        if not len(users):
            raise ValueError(
                f"--validation: no user of {options.source.files[0]} has two interactions, one to "
                "hold out and one to train on; leave it out"
            )
        held_out[VALIDATION] = (users, data.train_items[rows])
        train[rows] = False
        metadata["validation"] = "any training interaction of each user that has two or more"
    num_train = write_train(folder, [(data.train_users[train], data.train_items[train])])
    return _Interactions(
        num_train=num_train,
        held_out=held_out,
        stored={TEST: data.test_negatives},
        valid_negative=stored if options.valid_negative is None else options.valid_negative,
        metadata=metadata,
        words={},
        counts=data.counts,
    )


# Negatives


def _candidate_lists(
    options: InteractionLogOptions, log: _Interactions, folder: Path
) -> dict[str, CandidateLists]:
    """Returns the candidate lists of each split, with its stored negatives or drawn ones."""
    candidates, keys = {}, None
    for split, (users, items) in log.held_out.items():
        negatives = log.stored.get(split)
        if negatives is None:
            if keys is None:
                others = [] if options.nvidia_negatives else log.held_out.values()
                keys = touched_keys(folder, log.counts["items"], others)
            seed = [options.seed, _STREAMS[split]]
            try:
                count, distinct = log.valid_negative, not options.nvidia_negatives
                negatives = draw_unseen(users, log.counts["items"], keys, count, seed, distinct)
            except TooFewUnseen as error:
                fewer = f"--valid_negative {error.unseen} or less, or " if error.unseen else ""
                user = _user_text(folder, error.user)
                raise ValueError(
                    f"user {user} {error.what}; possible "
                    f"solutions: {fewer}a log without the rows of that user"
                ) from error
            _say(f"drew {negatives.size:,} negatives for {split}")
        candidates[split] = CandidateLists(users, items, negatives)
    return candidates


def _user_text(folder: Path, user: int) -> str:
    """Returns the raw value of a user's id, or the id itself in files that are numbered."""
    path = folder / ENCODER_FOLDER
    return Encoder.load(path).decode("user", [user])[0].as_py() if path.is_dir() else str(user)


def _metadata(
    options: InteractionLogOptions, log: _Interactions, candidates: dict[str, CandidateLists]
) -> dict:
    return {
        "made_by": "preproc.movielens",  # of all versions: checkpoints know the data set by it
        "source_form": options.source.form,
        "seed": options.seed,
        "valid_negative": log.valid_negative,
        "stored_negatives": list(log.stored),
        **({"nvidia_negatives": True} if options.nvidia_negatives else {}),
        **log.metadata,
        **{
            f"{split}_samples_per_series": lists.rows_per_list
            for split, lists in candidates.items()
        },
        "counts": log.counts,
    }
