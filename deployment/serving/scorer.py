"""A served model without a server: from requests to scores."""

import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deployment.serving import hps_keys
from deployment.serving import interface as interfaces
from deployment.serving.catalogue_search import CatalogueSearch
from deployment.serving.checks import RequestChecker, check_scores
from deployment.serving.dense import DenseRunner
from deployment.serving.interface import Interface
from deployment.serving.tables import MappedTables

if TYPE_CHECKING:
    from deployment.serving.raw.encoded_rows import RawRows
    from deployment.serving.raw.raw_catalogue import RawSearch
    from deployment.serving.raw.requests import RawRequests

# Embeddings of the rows that are computed at a time, about the caches of two cores. With 2,048 rows
# of 26 vectors of 129 columns in bf16 the answer took 29 ms, and 33 ms as a whole.
_BLOCK_BYTES = 4 << 20


def to_stderr(message: str) -> None:
    """Logs a warning without a server."""
    print(message, file=sys.stderr)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-logits)), float32, without overflow."""
    exact = logits.astype(np.float64)
    return (np.exp(np.minimum(exact, 0)) / (1 + np.exp(-np.abs(exact)))).astype(np.float32)


def all_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def open_raw_rows(folder: str | Path, interface: Interface) -> "RawRows":
    """Returns the encoder of raw rows of a version folder.

    Raises:
        ValueError: see `RawRows`, or a package that it needs is not installed.
    """
    try:  # models of encoded requests need neither PyArrow nor xxhash
        from deployment.serving.raw.encoded_rows import RawRows
    except ImportError as error:
        raise ValueError(
            f"raw rows need the packages pyarrow and xxhash in the model's environment ({error}): "
            "install them there, or deploy with --inputs encoded"
        ) from None
    return RawRows(folder, interface)


def open_raw_requests(folder: str | Path, interface: Interface) -> "RawRequests":
    """Returns the encoder of requests of raw rows; raises as `open_raw_rows`."""
    rows = open_raw_rows(folder, interface)
    from deployment.serving.raw.requests import RawRequests

    return RawRequests(rows, interface)


class ServedModel:
    """Model of a version folder, which does the work of the role in its interface.

    Arguments as those of `RequestScorer`; with `preload` tables are read into memory now, see
    `MappedTables`.
    """

    def __init__(
        self,
        folder: str | Path,
        interface: Interface,
        threads: int = 0,
        log: Callable[[str], None] = to_stderr,
        dense_folder: str | Path | None = None,
        preload: bool = False,
    ):
        cores = all_cores()
        if threads > cores:
            log(
                f"threads is {threads:,}, and this process may use {cores:,} cores: {cores:,} "
                "threads work on a batch"
            )
        self.threads = threads = min(threads or cores, cores)
        self.interface = interface
        self._raw: RawRequests | None = None
        if interface.columns and interface.role != interfaces.DENSE:
            self._raw = open_raw_requests(folder, interface)
        self._checker: RequestChecker | CatalogueSearch | RawRequests | RawSearch
        self._checker = self._raw or RequestChecker(interface)
        all_inputs = interface._replace(columns=(), role=interfaces.SCORER)
        self._encoded_checker: RequestChecker | CatalogueSearch = RequestChecker(all_inputs)
        self._tables = self._dense = None
        if interface.role in interfaces.ROLES_WITH_TABLES:
            self._tables = tables = MappedTables(folder, interface, threads, preload)
            if not tables.fits:
                log(
                    f"tables of {tables.size_bytes / 1e9:,.1f} GB are more than half of the memory "
                    "that is available: rows are read from the disk as requests need them"
                )
        if interface.role in interfaces.ROLES_WITH_DENSE_PART:
            self._dense = DenseRunner(dense_folder or folder, interface, threads, log)
        self._block_rows = max(1, _BLOCK_BYTES // (4 * max(1, interface.width)))
        # Reused per thread: allocating the embeddings of a large batch takes milliseconds.
        self._buffers = threading.local()
        self._catalogue: CatalogueSearch | None = None
        self._raw_search: RawSearch | None = None
        if interface.role == interfaces.RECOMMENDER:
            encoded = interface._replace(columns=())
            self._catalogue = CatalogueSearch(folder, encoded, self._scores)
            self._checker = self._encoded_checker = self._catalogue
        if self._catalogue is not None and self._raw is not None:
            from deployment.serving.raw import raw_catalogue  # needs PyArrow

            self._raw_search = raw_catalogue.RawSearch(self._raw, self._catalogue, interface)
            self._checker = self._raw_search

    def check(
        self, arrays: Mapping[str, np.ndarray], is_encoded: bool = False
    ) -> dict[str, np.ndarray]:
        """Returns the encoded tensors of a request, checked; raises BadRequest.

        Args:
            arrays: tensors of the request.
            is_encoded: whether they are encoded ones, though the model takes raw rows.
        """
        checker = self._encoded_checker if is_encoded else self._checker
        return checker.check(arrays)

    def warm_up(self) -> None:
        """Computes batches of example rows, if the model encodes them: the first user does not
        pay for allocations, indexes of vocabularies and choices of kernels."""
        if self._raw is None:
            return
        if self._catalogue is not None:  # a request of one row has the work of many
            self.answer(self._catalogue.check(self._raw.example(1)))
            return
        for num_rows in (1, self.interface.max_batch_size):
            self.answer(self._raw.example(num_rows))

    def answer(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the tensors `interface.answered` from checked tensors.

        The thread's next call overwrites embeddings.
        """
        if self.interface.role == interfaces.KEYS:
            return hps_keys.answer(self.interface, arrays)
        if self._tables is None and self._dense is None:
            return dict(arrays)
        if self._catalogue is not None:
            items, logits = self._catalogue.search(arrays)
            if self._raw_search is not None:
                items = self._raw_search.original_items(items)
            return {interfaces.ITEMS: items, interfaces.SCORES: sigmoid(logits)}
        if self._dense is None:
            answer = {interfaces.EMBEDDINGS: self._embeddings(arrays)}
            if self.interface.columns:  # the dense part cannot encode its inputs
                answer |= {name: arrays[name] for name in self.interface.dense_inputs}
            return answer
        return {self.interface.output: self._scores(arrays)}

    def _scores(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Computes the output of the dense part [batch, 1], in blocks."""
        rows, num_rows = len(next(iter(arrays.values()))), self._block_rows
        blocks = [
            {name: array[first : first + num_rows] for name, array in arrays.items()}
            for first in range(0, max(1, rows), num_rows)
        ]
        scores = [self._dense.run(self._embeddings(block), block) for block in blocks]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def _embeddings(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        if self._tables is None:
            return arrays.get(interfaces.EMBEDDINGS)
        return self._tables.lookup(arrays, self._buffer(arrays))

    def _buffer(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns this thread's embeddings [batch, width], uninitialized."""
        rows = len(next(iter(arrays.values())))
        if rows > len(getattr(self._buffers, "embeddings", ())):
            self._buffers.embeddings = np.empty((rows, self.interface.width), np.float32)
        return self._buffers.embeddings[:rows]

    def close(self) -> None:
        """Releases memory, maps and threads."""
        if self._tables is not None:
            self._tables.close()
        self._tables = self._dense = None


class RequestScorer:
    """A whole model: checks, lookups and dense part. Thread-safe.

    Args:
        folder: version folder of a monolithic model, or of the sparse part of an ensemble.
        threads: threads per batch, limited to the number of cores; 0: one per core.
        dense_folder: version folder of an ensemble's dense part.

    Raises:
        ValueError: a file is missing, damaged, or of another version.
    """

    def __init__(
        self,
        folder: str | Path,
        threads: int = 0,
        dense_folder: str | Path | None = None,
        log: Callable[[str], None] = to_stderr,
    ):
        interface = interfaces.read(folder)
        if interface.role != (interfaces.SCORER if dense_folder is None else interfaces.SPARSE):
            raise ValueError(
                f"{folder}: expected a model of the role {interfaces.SCORER}, or "
                f"{interfaces.SPARSE} and {interfaces.DENSE} of an ensemble together, got the role "
                f"{interface.role}"
            )
        if dense_folder is not None:
            dense = interfaces.read(dense_folder)
            if dense != interface._replace(role=interfaces.DENSE):
                raise ValueError(
                    f"{dense_folder}: is not the dense part of the ensemble of {folder}; deploy "
                    "both together"
                )
        self.interface = interface._replace(role=interfaces.SCORER)
        self._folder = folder
        encoded = self.interface._replace(columns=())
        self._model = ServedModel(folder, encoded, threads, log, dense_folder)

    @functools.cached_property
    def raw_rows(self) -> "RawRows":
        """Encoder of raw rows; raises ValueError if it cannot be read."""
        return open_raw_rows(self._folder, self.interface)

    def score(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Computes the click probabilities float32 [batch, 1] of encoded tensors [batch, *dims].

        Raises:
            BadRequest: see `RequestChecker.check`, or a score is NaN.
        """
        output = self.interface.output
        answer = self._model.answer(self._model.check(arrays))[output]
        check_scores(answer)
        return sigmoid(answer) if output == interfaces.LOGITS else answer
