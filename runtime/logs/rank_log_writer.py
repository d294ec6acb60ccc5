"""A process beside a rank that writes what the rank says to its log, and on to where it said it.

    python rank_log_writer.py NAME LOG ALIVE STDOUT STDERR

NAME is how the rank is called; the others are numbers of open files: its log, a pipe whose end says
that this process has ended, and the pipes that are the rank's stdout and stderr. Its own stdout and
stderr are where the rank's would be without it. It outlives the rank and ends when nobody has the
pipes any more. It imports nothing but Python's own.
"""

import os
import select
import signal
import sys
import time

_MOST_BYTES = 65536


class Log:
    """A file that may refuse what is written, when the disk is full: said once, then counted.

    Args:
      descriptor: an open file.
      name: of the rank.
    """

    def __init__(self, descriptor: int, name: str):
        self._descriptor, self._name = descriptor, name
        self._lost_bytes, self._said, self._in_line = 0, False, False

    def write(self, data: bytes) -> None:
        """Writes it, behind a line on what could not be written before it."""
        try:
            if self._lost_bytes:
                gap = b"\n=== %d bytes are missing here\n" % self._lost_bytes
                while gap:
                    gap = gap[os.write(self._descriptor, gap) :]
                self._lost_bytes = 0
            in_line = not data.endswith(b"\n") if data else self._in_line
            while data:
                data = data[os.write(self._descriptor, data) :]
            self._in_line = in_line
        except OSError as error:
            self._lost_bytes += len(data)  # what is left of it
            if not self._said:
                self._said = True
                note = f"note: the log of {self._name} cannot be written ({error.strerror}); "
                forward(2, f"{note}its process goes on\n".encode())

    def end(self) -> None:
        """Writes the last line."""
        date = time.strftime("%Y-%m-%d %H:%M:%S %z")
        line = f"=== {date}: the end of {self._name}\n"
        self.write(b"\n" * self._in_line + line.encode())


def forward(descriptor: int, data: bytes) -> bool:
    """Writes all of it; False where nobody reads it any more."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # somebody has set it so
            select.select((), (descriptor,), ())
        except OSError:
            return False
    return True


def copy(pipes: dict[int, int], log: Log) -> None:
    """Until the end of all pipes, each to its descriptor.

    Of what comes on both at once the first pipe is read first: what was said on stdout before an
    error on stderr stands before it.
    """
    ready = select.poll()
    for pipe in pipes:
        ready.register(pipe, select.POLLIN)
    heard = set(pipes)
    while pipes:
        said = {pipe for pipe, _ in ready.poll()}
        for pipe in [pipe for pipe in pipes if pipe in said]:
            data = os.read(pipe, _MOST_BYTES)
            log.write(data)  # first: a terminal may keep it waiting
            if pipe in heard and not forward(pipes[pipe], data):
                heard.remove(pipe)
            if not data:
                ready.unregister(pipe)
                del pipes[pipe]


def main(name: str, *descriptors: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    # The rank waits for its child, and no launcher finds its grandchild, to end it with the rank.
    if os.fork():
        os._exit(0)
    log_file, _, stdout, stderr = map(int, descriptors)
    log = Log(log_file, name)
    copy({stdout: 1, stderr: 2}, log)
    log.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
