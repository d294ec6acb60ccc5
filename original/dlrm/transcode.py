"""Runs `python -m preproc.transcode`."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
runpy.run_module("preproc.transcode", run_name="__main__", alter_sys=True)
