"""Where this process is: at which step, for how long, and in which line of which file."""

import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parents[3]
_STANDARD = sysconfig.get_paths()["stdlib"]
_PACKAGES = ("site-packages", "dist-packages")
# A thread in one of these computes, or waits in a collective: Python cannot tell which.
_IN_STEP = ("tensorflow", "horovod")
_COLLECTIVES = _ROOT / "runtime" / "cluster" / "distributed.py"

_step: int | None = None
_moved_at = time.monotonic()


class Whereabouts(NamedTuple):
    """Where a process is.

    Attributes:
      step: steps of training done; None before the first.
      place: the innermost lines of our own code, of the main thread and of those that read rows.
      waits: it is within a collective or within TensorFlow, where most ranks are that wait for
        others, and reads no rows.
    """

    step: int | None
    place: str
    waits: bool


def moved() -> None:
    """Notes that all ranks have just met, or that this one has done a piece of its work."""
    global _moved_at
    _moved_at = time.monotonic()


def at_step(step: int) -> None:
    """Notes that so many steps are done."""
    global _step
    _step = step
    moved()


def still_s() -> float:
    """Seconds since `moved` or `at_step` was called last."""
    return time.monotonic() - _moved_at


def look() -> Whereabouts:
    """Where this process is now; to be asked by any of its threads."""
    frames = sys._current_frames()
    # One that TensorFlow started becomes a "Dummy" when it asks Python for its name.
    by_python = {t.ident for t in threading.enumerate() if not t.name.startswith("Dummy-")}
    main = _stack(frames.get(threading.main_thread().ident))
    waits = _waits(main)
    places = [_place(main)]
    # TensorFlow's own threads have a Python stack while they call a reader of rows, not before or
    # after. Threads that Python started (a checkpoint's writer, this one) are nobody's hindrance.
    for thread, frame in frames.items():
        if thread not in by_python and (stack := _own(_stack(frame))):
            waits = False
            places.append(_place(stack))
    return Whereabouts(_step, " and in ".join(dict.fromkeys(places)), waits)


def unknown(error: Exception) -> Whereabouts:
    """What to say where `look` failed: as one that waits, so that it is not blamed for that."""
    return Whereabouts(_step, f"an unknown line (looking failed: {error!r})", True)


def _stack(frame: FrameType | None) -> list[FrameType]:
    """The frames of a thread, innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _own(stack: list[FrameType]) -> list[FrameType]:
    return [frame for frame in stack if _package(frame) is None]


def _place(stack: list[FrameType]) -> str:
    """The innermost line of our own code, e.g. "training/loop.py:97 train within tensorflow"."""
    own = _own(stack)
    if not own:
        return f"the package {_package(stack[0])}" if stack else "no Python code"
    file, code = Path(own[0].f_code.co_filename), own[0].f_code
    if file.is_relative_to(_ROOT):
        file = file.relative_to(_ROOT)
    within = "" if own[0] is stack[0] else f" within {_package(stack[0])}"
    return f"{file}:{own[0].f_lineno} {code.co_name}{within}"


def _waits(stack: list[FrameType]) -> bool:
    own = _own(stack)
    collective = bool(own) and Path(own[0].f_code.co_filename) == _COLLECTIVES
    return collective or (bool(stack) and _package(stack[0]) in _IN_STEP)


def _package(frame: FrameType) -> str | None:
    """Of other people's code the name of its package, or of Python's own module; None: ours."""
    path = frame.f_code.co_filename
    parts = Path(path).parts
    for folder in _PACKAGES:
        if folder in parts:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    if path.startswith("<frozen"):
        return "python"
    # Python that was made up by TensorFlow: functions of graphs, wrappers of Horovod's operations.
    made_up = path == "<string>" and frame.f_globals.get("__name__") != "__main__"
    if made_up or "__autograph_generated_file" in path:
        return "tensorflow"
    return Path(path).stem if path.startswith(_STANDARD) else None
