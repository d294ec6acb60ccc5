"""A case's tensors in memory, and the structures of the interface that name them."""

import numpy as np

from tests.gpu.embedding_bag.cases import ROWS_BEFORE, BagCase
from tests.gpu.embedding_bag.inputs import Batch, Inputs
from tests.gpu.embedding_bag.library import (
    DTYPES,
    OPTIMIZERS,
    BagLibrary,
    Column,
    Ids,
    Optimizer,
    Table,
    Use,
)
from tests.gpu.memory import OUTPUT_GUARD, Memory, Tensor


class Placed:
    """A case's inputs in memory, and the structures that name them."""

    def __init__(self, memory: Memory, case: BagCase, inputs: Inputs):
        self._memory, self._case = memory, case
        self._kept: list = []
        self.table_tensor = self.tensor("table", inputs.table, writable=True)
        self.slot_tensors = [self.tensor("slots", slot, writable=True) for slot in inputs.slots]
        self.table = Table(self.table_tensor.address, case.rows, case.dim, DTYPES[case.dtype])
        self.uses = (Use * max(1, len(inputs.batches)))()
        for use, batch in zip(self.uses, inputs.batches, strict=False):
            use.ids = self._ids(batch)
            use.gradient = self.input("upstream", batch.upstream)
        self.optimizer = Optimizer(OPTIMIZERS[case.optimizer])
        for turn, slot in enumerate(self.slot_tensors):
            self.optimizer.slots[turn] = slot.address

    def tensor(self, name: str, contents: np.ndarray, writable: bool) -> Tensor:
        """A tensor of these numbers, off its alignment where the case asks for it."""
        offset_bytes = self._case.offset_of(name) * contents.itemsize
        tensor = self._memory.tensor(contents, offset_bytes, writable)
        self._kept.append(tensor)
        return tensor

    def input(self, name: str, contents: np.ndarray | None) -> int:
        """The address of a tensor that kernels read, 0 for none."""
        return 0 if contents is None else self.tensor(name, contents, writable=False).address

    def output(self, dtype, *shape: int) -> Tensor:
        """A tensor that a kernel has to fill."""
        size = np.dtype(dtype).itemsize
        poison = np.full((*shape, size), OUTPUT_GUARD, np.uint8).view(dtype)[..., 0]
        return self.tensor("output", poison, writable=True)

    def workspace(self, library: BagLibrary) -> Tensor:
        """A workspace; the emulator checks writes by 2 bytes, so its address is even."""
        size_bytes = library.workspace(self.table, self.uses, self._case.uses)
        if size_bytes < 0:
            raise RuntimeError(f"the workspace of {self._case} has {size_bytes} bytes")
        contents = np.full(-(-size_bytes // 2), 0xFFFF, np.uint16)
        return self.tensor("workspace", contents, writable=True)

    def _ids(self, batch: Batch) -> Ids:
        case = self._case
        columns = case.columns[:1] if case.ragged else case.columns
        array = (Column * len(columns))()
        offset = ROWS_BEFORE
        for column, (hotness, rows, mean) in zip(array, columns, strict=True):
            column.hotness = -7 if case.ragged else hotness  # not used with splits
            column.row_offset, column.num_rows, column.mean = offset, rows, int(mean)
            offset += rows
        self._kept.append(array)
        return Ids(
            *(self.input("ids", batch.ids), case.id_bytes, len(batch.ids), batch.num_samples),
            *(self.input("splits", batch.splits), self.input("weights", batch.weights)),
            *(array, len(columns)),
        )
