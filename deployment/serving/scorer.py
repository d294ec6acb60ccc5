"""A served model without a server: requests to scores."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from deployment.serving import hps_keys
from deployment.serving import interface as interfaces
from deployment.serving.checks import Checks, check_scores
from deployment.serving.dense import Dense
from deployment.serving.interface import DENSE, EMBEDDINGS, SCORER, SCORES, SPARSE, Interface
from deployment.serving.tables import Tables


def to_stderr(sentence: str) -> None:
    """A log for those who have no other."""
    print(sentence, file=sys.stderr)


def all_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Model:
    """The work of a version folder, by the role that its interface has.

    Args:
      folder: a version folder.
      interface: its interface.
      threads: that work on a batch, at most one for each core; 0: one for each.
      log: gets sentences that whoever runs the model should know.
      dense_folder: where the dense part is, if elsewhere.
      preload: whether tables are read into memory now, see `Tables`.

    Attributes:
      interface: its interface.
      threads: how many work on a batch.
      by_rows: whether each row of an answer is of one row of the request, so that requests can be
        put together.

    Raises:
      ValueError: a file is missing, damaged, or of another version.
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
        self.by_rows = interface.role != hps_keys.ROLE
        self._checks = Checks(interface)
        self._tables = self._dense = None
        if interface.role in (SCORER, SPARSE):
            self._tables = tables = Tables(folder, interface, threads, preload)
            if not tables.fits:
                log(
                    f"tables of {tables.size_bytes / 1e9:,.1f} GB are more than half of the memory "
                    "that is available: each row is read from the disk when it is asked for"
                )
        if interface.role in (SCORER, DENSE):
            self._dense = Dense(dense_folder or folder, interface, threads, log)
        # Memory for embeddings is kept: that of a large batch costs milliseconds to get.
        self._kept = threading.local()

    def check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors of a request, see `Checks.check`.

        Raises:
          BadRequest: a rule is broken.
        """
        return self._checks.check(arrays)

    def answer(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What `interface.answered`, or `hps_keys.answered`, says, of tensors that are checked.

        Embeddings are in memory that this thread's next call writes to.
        """
        if not self.by_rows:
            return hps_keys.answer(self.interface, arrays)
        if self._tables is None and self._dense is None:
            return dict(arrays)
        embeddings = arrays.get(EMBEDDINGS)
        if self._tables is not None:
            embeddings = self._tables.look_up(arrays, self._memory(arrays))
        if self._dense is None:
            return {EMBEDDINGS: embeddings}
        return {SCORES: self._dense.run(embeddings, arrays)}

    def _memory(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """This thread's embeddings [batch, width], uninitialised."""
        rows = len(next(iter(arrays.values())))
        if rows > len(getattr(self._kept, "embeddings", ())):
            self._kept.embeddings = np.empty((rows, self.interface.width), np.float32)
        return self._kept.embeddings[:rows]

    def close(self) -> None:
        """Gives memory, maps and threads back."""
        if self._tables is not None:
            self._tables.close()
        self._tables = self._dense = None


class Scorer:
    """A whole model: checks, look-ups and dense part of a request, one after the other.

    Threads may share it.

    Args:
      folder: a version folder: of a model in one piece, or of the sparse part of an ensemble.
      threads: that work on a batch, at most one for each core; 0: one for each.
      dense_folder: the version folder of an ensemble's dense part.
      log: gets sentences that whoever runs the model should know.

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
        needed = SCORER if dense_folder is None else SPARSE
        if interface.role != needed:
            raise ValueError(
                f"{folder}: is a model of the role {interface.role}; allowed: {SCORER}, or "
                f"{SPARSE} and {DENSE} of an ensemble together"
            )
        if dense_folder is not None:
            dense = interfaces.read(dense_folder)
            if dense != interface._replace(role=DENSE):
                raise ValueError(
                    f"{dense_folder}: is not the dense part of the ensemble of {folder}; deploy "
                    "both together"
                )
        self.interface = interface._replace(role=SCORER)
        self._model = Model(folder, self.interface, threads, log, dense_folder)

    def score(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Click probabilities float32 [batch, 1] of a request.

        Args:
          arrays: tensor -> [batch, *dims], those of `interface.inputs`.

        Raises:
          BadRequest: a tensor is missing, has another dtype or shape, an id is out of range, a
            numerical not finite, a zero in a history no padding, or a score NaN.
        """
        scores = self._model.answer(self._model.check(arrays))[SCORES]
        check_scores(scores)
        return scores
