"""The peer on Intel's extension for PyTorch, as in Intel's reference of DLRM.

`ipex.optimize` with its SGD, `ipex.nn.functional.interaction`, and tables merged into one call
whose backward pass updates the rows, or separate ones with sparse gradients.
"""

from pathlib import Path

import intel_extension_for_pytorch as ipex
import torch
from torch import nn

from benchmarks.dlrm_training import peer, workload
from benchmarks.harness.torch_training import TorchTraining, load_weights
from benchmarks.harness.worker import Started, load


class IntelDLRM(peer.DLRM):
    """The peer's model with one table per feature.

    Args:
        merged: Whether the backward pass updates the rows.
    """

    def __init__(self, sizes: workload.DLRMSizes, merged: bool, amp: bool):
        super().__init__(sizes)
        self.sizes, self.merged, self.amp = sizes, merged, amp
        self.bag_offsets = [torch.arange(sizes.batch_size + 1)] * len(sizes.table_rows)

    def load(self, weights):
        super().load(weights)
        del self.table
        tables = [weights[f"table_{t}"] for t in range(len(self.sizes.table_rows))]
        options = {"mode": "sum", "freeze": False, "sparse": True, "include_last_offset": True}
        self.tables = nn.ModuleList(
            nn.EmbeddingBag.from_pretrained(table, **options) for table in tables
        )
        if self.merged:
            merged = ipex.nn.modules.MergedEmbeddingBagWithSGD
            self.tables = merged.from_embeddingbag_list(self.tables, lr=workload.LEARNING_RATE)
            if self.amp:
                self.tables.to_bfloat16_train()

    def interact(self, bottom, ids):
        by_table = [column.contiguous() for column in ids.unbind(1)]
        if self.merged:
            vectors = self.tables(by_table, self.bag_offsets)
        else:
            calls = zip(self.tables, by_table, self.bag_offsets, strict=True)
            vectors = [table(column, offsets) for table, column, offsets in calls]
        return ipex.nn.functional.interaction(bottom, *vectors)


def side(folder: Path, threads: int, tables: str) -> Started:
    torch.set_num_threads(threads)
    rows, sizes = load(folder, workload.DLRMRows, workload.DLRMSizes)
    cross_entropy = nn.BCEWithLogitsLoss()

    def start(amp: bool) -> TorchTraining:
        model = IntelDLRM(sizes, tables == "merged", amp)
        model.load(load_weights(folder))
        fused = {id(p) for p in model.tables.parameters()} if model.merged else set()
        moved = [p for p in model.parameters() if id(p) not in fused]
        optimizer = torch.optim.SGD(moved, lr=workload.LEARNING_RATE)
        dtype = torch.bfloat16 if amp else torch.float32
        model, optimizer = ipex.optimize(
            model.train(), dtype=dtype, optimizer=optimizer, inplace=True
        )

        def loss(batch: workload.DLRMRows) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                logits = model(batch.numerical, batch.ids)
            return cross_entropy(logits.float(), batch.labels)

        return TorchTraining(loss, [optimizer], rows, sizes.batch_size)

    return f"intel-extension-for-pytorch {ipex.__version__}, torch {torch.__version__}", start
