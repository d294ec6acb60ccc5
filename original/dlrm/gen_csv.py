"""Runs `python -m dataloading.gen_csv`."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
runpy.run_module("dataloading.gen_csv", run_name="__main__", alter_sys=True)
