"""The compiled part of loaders: see `dataloading.compiled`."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("_loader_ops.so")
