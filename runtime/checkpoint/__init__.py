"""Checkpoints: everything that is needed to resume a training, on any number of ranks.

    PATH/00003-step-600/
        checkpoint.json      descriptions of model and training; of each weight shape, dtype, files
                             and checksums of their bytes
        dense/*.npy          weights of the MLPs and the interaction
        sparse/FEATURE.npy   embedding tables; of a sharded table one file per shard, like
                             FEATURE,rows=0-500.npy or FEATURE,columns=0-64.npy
        sparse.KIND/*.npy    state of the optimizers; also dense.KIND/*.npy

Files are named by table, rows and columns, and not by rank: each rank writes its part and reads
what it needs, block by block. A checkpoint gets its name when all of it is on the disk.
"""

from runtime.checkpoint.files import DamagedCheckpoint, Index
from runtime.checkpoint.folder import Folder, best_of, resolve, suggest_previous
from runtime.checkpoint.reader import describe, is_original, restore, restore_original
from runtime.checkpoint.weight import Box, NonFiniteWeight, VariableWeight, Weight, matrix_of

__all__ = [
    "Box",
    "DamagedCheckpoint",
    "Folder",
    "Index",
    "NonFiniteWeight",
    "VariableWeight",
    "Weight",
    "best_of",
    "describe",
    "is_original",
    "matrix_of",
    "resolve",
    "restore",
    "restore_original",
    "suggest_previous",
]
