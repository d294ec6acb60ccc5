"""Lock of a checkpoint folder: one training at a time may write to it."""

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runtime.files.disk import FileLock, no_follow

# A training that was killed may need some seconds until its last process has ended.
WAIT_S = 60.0
# A file server keeps the lock of a machine that lost its power: NFS 4 for the machine's lease, of
# 90 s by default with a Linux server, NFS 3 until that machine starts again.
RESUME_WAIT_S = 180.0

_QUIET_S = 3.0
_SEEN_AFTER_S = 10.0


class Lock(FileLock):
    """Lock of a checkpoint folder, with the name of its holder for error messages."""

    def __init__(self, root: Path):
        super().__init__(root / ".lock")
        # In the file; other ranks know the folder by it (`sees`). None without the lock, or if it
        # cannot be written, so that saves will fail.
        self.token: str | None = None

    def wait(self, wait_s: float) -> None:
        """Waits for the lock; after some seconds a note on stderr names its holder.

        Raises:
            ValueError: another training still has it.
            OSError: the file cannot be written.
        """
        start_s, quiet, folder = time.monotonic(), True, self.path.parent
        while not self.acquire(blocking=False):
            waited_s = time.monotonic() - start_s
            if waited_s > wait_s:
                raise ValueError(
                    f"--save_checkpoint_path {folder} is being written by another training that "
                    f"still runs: {self._holder()}. Waited {wait_s:.0f} s for it. End it, or give "
                    "another folder; only if that machine is down for good, so that nothing of it "
                    f"can write any more and a file server keeps its lock, remove {self.path}"
                )
            if quiet and waited_s > _QUIET_S:
                quiet = False
                print(
                    f"note: {folder} is being written by {self._holder()}; waiting up to "
                    f"{wait_s:.0f} s for its end",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(0.2)
        self._write_holder()

    def check(self) -> None:
        """Checks that the lock still belongs to this process.

        Raises:
            OSError: the file was removed, or a file server lost contact with this machine, and
                another training may have the lock now.
        """
        if not self.is_held or self.token is None:
            return
        try:
            holder = _read(self.path)
        except FileNotFoundError:
            raise OSError(f"{self.path} was removed during the training") from None
        if holder.get("word") != self.token:
            raise OSError(
                f"another training has taken the folder: {self._holder()}; stop one of them"
            )

    def _write_holder(self) -> None:
        self.token, token = None, secrets.token_hex(8)
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "word": token}
        since = datetime.now(timezone.utc).isoformat(" ", "seconds")
        with contextlib.suppress(OSError), open(self.path, "w", opener=no_follow) as file:
            json.dump({**holder, "since": since}, file)
            file.flush()
            os.fsync(file.fileno())
            self.token = token

    def sees(self, token: str) -> bool:
        """Returns whether this process can read rank 0's token; file systems may take seconds."""
        deadline = time.monotonic() + _SEEN_AFTER_S
        while True:
            with contextlib.suppress(OSError):
                if _read(self.path).get("word") == token:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)

    def _holder(self) -> str:
        try:
            holder = _read(self.path)
            return f"{holder['host']}, pid {holder['pid']}, since {holder['since']}"
        except (OSError, KeyError):
            return "an unknown process"


def _read(path: Path) -> dict[str, Any]:
    """Reads the holder of the lock; empty if it is incomplete, or of an earlier version."""
    try:
        holder = json.loads(path.read_text())
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}
