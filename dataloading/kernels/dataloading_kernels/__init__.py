"""The compiled part of loaders: see `dataloading.pipeline.gather`."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("_loader_ops.so")
