"""Runs `python -m preproc.movielens --nvidia_negatives`; --path stands for --input."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
sys.argv = [word.replace("--path", "--input") for word in sys.argv]
sys.argv[1:1] = ["--nvidia_negatives", "--seed=1", "--output=/data/cache/ml-20m"]
runpy.run_module("preproc.movielens", run_name="__main__", alter_sys=True)
