"""Checkpoints: everything that is needed to resume a training, on any number of ranks.

Files are named by table, rows and columns, and not by rank (docs/how_to/resume.md has the layout):
each rank writes its part and reads what it needs, block by block.
"""

from distributed_embeddings.box import Box

from runtime.checkpoint.files import DamagedCheckpoint, Index
from runtime.checkpoint.folder import Folder, best_of, resolve, suggest_previous
from runtime.checkpoint.nvidia.folders import is_original
from runtime.checkpoint.nvidia.neumf import FILE as NEUMF_FILE
from runtime.checkpoint.reader import (
    describe,
    export_neumf,
    restore,
)
from runtime.checkpoint.weight import NonFiniteWeight, VariableWeight, Weight, matrix_of

__all__ = [
    "NEUMF_FILE",
    "Box",
    "DamagedCheckpoint",
    "Folder",
    "Index",
    "NonFiniteWeight",
    "VariableWeight",
    "Weight",
    "best_of",
    "describe",
    "export_neumf",
    "is_original",
    "matrix_of",
    "resolve",
    "restore",
    "suggest_previous",
]
