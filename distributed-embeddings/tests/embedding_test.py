"""Tests of `Embedding` and of the lookups, by the name that they have in NVIDIA's repository.

python embedding_test.py
"""

import sys
from pathlib import Path

import pytest

FILES = ("test_embedding_layers.py", "test_integer_lookup.py", "kernels")

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", *(str(Path(__file__).with_name(file)) for file in FILES)]))
