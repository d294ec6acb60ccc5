"""Replaces this process by a program that receives SIGTERM when its parent ends.

Usage: python launcher.py PARENT_PID PROGRAM [ARGUMENT ...]

Python's own `preexec_fn` may hang where threads of TensorFlow or gRPC hold locks.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent process has ended")
    os.execv(sys.argv[2], sys.argv[2:])
