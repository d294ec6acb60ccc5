"""Runs our commands; their output is shown if they fail."""

import os
import subprocess
import sys


def run(*command: object) -> None:
    """Runs Python quietly; raises with its output if it fails."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
