"""Checkpoints: everything that a training needs to go on, on any number of processes.

    PATH/00003-step-600/
        checkpoint.json      what the model is, where the training was, and of each weight: shape,
                             dtype, files, and checksums of their bytes
        dense/*.npy          weights of the MLPs and the interaction
        sparse/FEATURE.npy   embedding tables; where ranks held parts of one, a file a part, like
                             FEATURE,rows=0-500.npy or FEATURE,columns=0-64.npy
        sparse.KIND/*.npy    state of the optimizers, likewise; dense.KIND/*.npy

A file is named by the table and the rows and columns in it, not by who held them: each rank writes
what it has and reads what it needs, block by block. A checkpoint has its name only when all of it
is on the disk.
"""

from runtime.checkpoint.files import DamagedCheckpoint, Index
from runtime.checkpoint.folder import BEST, Folder, best_of, resolve, suggest_previous
from runtime.checkpoint.reader import describe, is_original, restore, restore_original, verify
from runtime.checkpoint.saver import Outcome, Saver, save
from runtime.checkpoint.weight import Box, NonFiniteWeight, VariableWeight, Weight, matrix_of

__all__ = [
    "BEST",
    "Box",
    "DamagedCheckpoint",
    "Folder",
    "Index",
    "NonFiniteWeight",
    "Outcome",
    "Saver",
    "VariableWeight",
    "Weight",
    "best_of",
    "describe",
    "is_original",
    "matrix_of",
    "resolve",
    "restore",
    "restore_original",
    "save",
    "suggest_previous",
    "verify",
]
