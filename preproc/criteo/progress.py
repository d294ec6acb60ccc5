"""Progress of a run: a bar on a terminal, one line per stage elsewhere."""

import sys
import time

from tqdm import tqdm


class StageProgress:
    """Reports finished stages on stderr; a context manager."""

    def __init__(self, num_stages: int, stream=None):
        self._num_stages = num_stages
        self._stream = sys.stderr if stream is None else stream
        self._done = 0
        self._bar = None

    def __enter__(self):
        if self._stream.isatty():
            self._bar = tqdm(total=self._num_stages, file=self._stream, unit="stage")
        self._started = time.perf_counter()
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def start(self, name: str) -> None:
        """A stage begins."""
        self._stage_started = time.perf_counter()
        if self._bar is not None:
            self._bar.set_description(name)

    def finish(self, name: str, note: str) -> None:
        """A stage is done; `note` describes its result."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(1)
            return
        elapsed_s = time.perf_counter() - self._stage_started
        print(
            f"[{self._done}/{self._num_stages}] {name}: {note}, {elapsed_s:.1f} s",
            file=self._stream,
            flush=True,
        )
