"""Runs `python -m preproc.gen_csv`."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
runpy.run_module("preproc.gen_csv", run_name="__main__", alter_sys=True)
