"""Tests of the layers, by the name that they have in NVIDIA's repository.

python dist_model_parallel_test.py
"""

import sys
from pathlib import Path

import pytest

FILES = ("test_distributed_embedding.py", "test_original_api.py")

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", *(str(Path(__file__).with_name(file)) for file in FILES)]))
