"""Runs `ncf.py --mode inference`, by default with several batch sizes."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
sys.argv = [w.replace("--num_batches", "--max_steps") for w in (*sys.argv, "--verbose")]
sys.argv[1:1] = ["--mode=inference", "--preset=terabyte", "--batch_sizes=1,64,4096,262144"]
runpy.run_path(f"{sys.path[0]}/ncf.py", run_name="__main__")
