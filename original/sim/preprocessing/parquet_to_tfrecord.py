"""Runs `python -m preproc.amazon_books.parquet_to_tfrecord`."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])
runpy.run_module("preproc.amazon_books.parquet_to_tfrecord", run_name="__main__", alter_sys=True)
