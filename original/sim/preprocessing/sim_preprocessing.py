"""Runs `python -m preproc.amazon_books` with NVIDIA's negatives and categories."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])
sys.argv[1:1] = ["--negatives", "popularity", "--category_list", "first", "--seed", "12345"]
runpy.run_module("preproc.amazon_books", run_name="__main__", alter_sys=True)
