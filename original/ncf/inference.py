"""Runs `ncf.py --mode inference`, by default with several batch sizes."""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])
sys.argv = [word.replace("--num_batches", "--max_steps") for word in sys.argv]
sys.argv[1:1] = ["--mode=inference", "--preset=terabyte", "--batch_sizes=1,64,4096,262144"]
sys.argv.insert(1, "--verbose")  # prints the lines of dllogger, which programs read
runpy.run_path(f"{sys.path[0]}/ncf.py", run_name="__main__")
