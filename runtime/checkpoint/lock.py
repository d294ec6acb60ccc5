"""Who may write to a folder of checkpoints: a lock on a file in it, which says whose it is."""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

LOCK = ".lock"

# A training that was killed may need some seconds until its last process has ended.
WAIT_S = 60.0
# A file server keeps the lock of a machine that lost its power: NFS 4 for the machine's lease, of
# 90 s where the server is Linux and nobody changed it, NFS 3 until that machine starts again.
RESUME_WAIT_S = 180.0

_QUIET_S = 3.0
_SEEN_AFTER_S = 10.0


class Held(Exception):
    """Another training has the lock; with a few words on which one it is."""


class Lock:
    """The lock of a folder. It is that on the file which has the name: where the file was removed,
    whoever locks its successor has it.

    Args:
      root: the folder.
    """

    def __init__(self, root: Path):
        self.path = root / LOCK
        self._file: int | None = None
        self._word: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process has it; false on a file system without locks."""
        return self._file is not None

    def acquire(self, wait_s: float) -> None:
        """Waits for it; after some seconds a note on stderr says for whom.

        Raises:
          Held: another training has it still.
          OSError: the file cannot be written.
        """
        begun, quiet = time.monotonic(), True
        while not self._try():
            waited_s = time.monotonic() - begun
            if waited_s > wait_s:
                raise Held(self._holder())
            if quiet and waited_s > _QUIET_S:
                quiet = False
                print(
                    f"note: {self.path.parent} is being written by {self._holder()}; waiting up to "
                    f"{wait_s:.0f} s for its end",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(0.2)
        self.mark()

    def release(self) -> None:
        """Lets others have it; the file stays."""
        if self._file is not None:
            os.close(self._file)
        self._file = self._word = None

    def check(self) -> None:
        """Makes sure that it is still this process's.

        Raises:
          OSError: somebody removed the file, or a file server did not hear of this machine for
            long, and another training has it now.
        """
        if self._file is None or self._word is None:
            return
        try:
            if _read(self.path).get("word") == self._word:
                return
        except FileNotFoundError:  # nobody has it yet
            self.release()
            if self._try():
                self.mark()
                return
        raise OSError(f"the folder is another training's now: {self._holder()}; end one of them")

    def mark(self) -> str | None:
        """Writes into the file who has the lock since when, and a word by which others know the
        folder (`sees`); None: it cannot be written, which saves will tell."""
        self._word, word = None, secrets.token_hex(8)
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "word": word}
        since = datetime.now(timezone.utc).isoformat(" ", "seconds")
        try:
            with open(self.path, "w") as file:
                json.dump({**holder, "since": since}, file)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return None
        self._word = word
        return word

    def sees(self, word: str) -> bool:
        """Whether this process sees what `mark` wrote; file systems may take seconds."""
        deadline = time.monotonic() + _SEEN_AFTER_S
        while True:
            with contextlib.suppress(OSError):
                if _read(self.path).get("word") == word:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)

    def _try(self) -> bool:
        """Whether nobody else has it; true where the file system has no locks."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.stat(self.path)
        except (BlockingIOError, FileNotFoundError):
            os.close(file)
            return False
        except OSError:  # a file system without locks
            os.close(file)
            return True
        if not os.path.samestat(os.fstat(file), named):  # it was removed, and made again
            os.close(file)
            return False
        self._file = file
        return True

    def _holder(self) -> str:
        try:
            said = _read(self.path)
            return f"{said['host']}, pid {said['pid']}, since {said['since']}"
        except (OSError, KeyError):
            return "a process that did not say its name"


def _read(path: Path) -> dict:
    """What `mark` wrote; empty where that is incomplete, or of an earlier version."""
    try:
        said = json.loads(path.read_text())
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
