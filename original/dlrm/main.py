"""Starts `main.py` of the repository's root."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)
sys.argv.insert(1, "--verbose")  # prints the lines of dllogger, which programs read
runpy.run_path(str(ROOT / Path(__file__).name), run_name="__main__")
