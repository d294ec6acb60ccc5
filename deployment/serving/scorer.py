"""A served model without a server: from requests to scores."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from deployment.serving import hps_keys
from deployment.serving import interface as interfaces
from deployment.serving.catalogue_search import CatalogueSearch
from deployment.serving.checks import RequestChecker, check_scores
from deployment.serving.dense import DenseRunner
from deployment.serving.interface import Interface
from deployment.serving.tables import MappedTables


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
        self._checker: RequestChecker | CatalogueSearch = RequestChecker(interface)
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
        # Reused per thread: allocating the embeddings of a large batch takes milliseconds.
        self._buffers = threading.local()
        self._catalogue = None
        if interface.role == interfaces.RECOMMENDER:
            self._checker = self._catalogue = CatalogueSearch(folder, interface, self._scores)

    def check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._checker.check(arrays)

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
            return {interfaces.ITEMS: items, interfaces.SCORES: sigmoid(logits)}
        if self._dense is None:
            return {interfaces.EMBEDDINGS: self._embeddings(arrays)}
        return {self.interface.output: self._scores(arrays)}

    def _scores(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Computes the output of the dense part [batch, 1]."""
        return self._dense.run(self._embeddings(arrays), arrays)

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
        self._model = ServedModel(folder, self.interface, threads, log, dense_folder)

    def score(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Computes the click probabilities float32 [batch, 1] of a request [batch, *dims].

        Raises:
            BadRequest: see `RequestChecker.check`, or a score is NaN.
        """
        output = self.interface.output
        answer = self._model.answer(self._model.check(arrays))[output]
        check_scores(answer)
        return sigmoid(answer) if output == interfaces.LOGITS else answer
