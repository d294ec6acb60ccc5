"""The peer: TorchRec's DLRM and DLRM_DCN, as in MLPerf's reference, with our weights.

A worker of `mlperf_training`. Tables of fbgemm with exact Adagrad, which the backward pass applies;
`torch.optim.Adagrad` for the dense weights, `torch.autocast`.
"""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.harness.torch_training import TorchTraining, copy_linears, load_weights
from benchmarks.harness.worker import Started, load
from benchmarks.mlperf_training import workload
from benchmarks.mlperf_training.workload import Rows, Sizes

OPTIMIZERS = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}


def optimizer_options(optimizer: str, learning_rate: float) -> dict[str, float]:
    options = {"lr": learning_rate}
    return options | ({"eps": workload.EPSILON} if optimizer == "adagrad" else {})


def make_tables(sizes: Sizes, optimizer: str, learning_rate: float, is_fused: bool) -> nn.Module:
    """Makes the tables: modules of PyTorch, or fbgemm's, whose backward pass moves the rows."""
    tables = [
        EmbeddingBagConfig(
            name=f"table_{t}",
            embedding_dim=sizes.dim,
            num_embeddings=rows,
            feature_names=[f"feature_{t}"],
            pooling=PoolingType.SUM,
        )
        for t, rows in enumerate(sizes.table_rows)
    ]
    device = torch.device("cpu")
    if not is_fused:
        return EmbeddingBagCollection(tables, device=device)
    options = optimizer_options(optimizer, learning_rate)
    return FusedEmbeddingBagCollection(
        tables, optimizer_type=OPTIMIZERS[optimizer], optimizer_kwargs=options, device=device
    )


def make_model(sizes: Sizes, tables: nn.Module) -> DLRM:
    dims = {
        "dense_in_features": workload.NUM_NUMERICAL,
        "dense_arch_layer_sizes": list(sizes.bottom_mlp_dims),
        "over_arch_layer_sizes": list(sizes.top_mlp_dims),
    }
    if not sizes.num_cross_layers:
        return DLRM(tables, **dims)
    cross = {"dcn_num_layers": sizes.num_cross_layers, "dcn_low_rank_dim": sizes.cross_rank}
    return DLRM_DCN(tables, **dims, **cross)


@torch.no_grad()
def copy_weights(model: DLRM, sizes: Sizes, weights: Mapping[str, torch.Tensor]) -> None:
    """Copies our weights, by their names in checkpoints, into a model of TorchRec."""
    for t, table in enumerate(model.sparse_arch.embedding_bag_collection.embedding_bags.values()):
        table.weight.copy_(weights[f"table_{t}"])
    copy_linears(model.dense_arch, weights, "bottom_mlp")
    copy_linears(model.over_arch, weights, "top_mlp")
    if sizes.num_cross_layers:
        cross = model.inter_arch.crossnet
        for i in range(sizes.num_cross_layers):
            cross.V_kernels[i].copy_(weights[f"cross.down_{i}.kernel"].T)
            cross.W_kernels[i].copy_(weights[f"cross.up_{i}.kernel"].T)
            cross.bias[i].copy_(weights[f"cross.up_{i}.bias"])
        return
    # TorchRec's pairs are the upper triangle, row by row, and ours the lower one.
    first = next(layer for layer in model.over_arch.modules() if isinstance(layer, nn.Linear))
    columns, rows = np.triu_indices(len(sizes.table_rows) + 1, 1)
    pairs = torch.from_numpy(sizes.dim + rows * (rows - 1) // 2 + columns)
    kernel = weights["top_mlp.dense_0.kernel"]
    first.weight.copy_(torch.cat([kernel[: sizes.dim], kernel[pairs]]).T)


def jagged_ids(ids: torch.Tensor, sizes: Sizes) -> KeyedJaggedTensor:
    """Returns ids [n, sum of hotness] as TorchRec reads them: by feature, then by sample."""
    ids = ids.long()
    lengths = torch.tensor(sizes.hotness, dtype=torch.int32).repeat_interleave(len(ids))
    result = KeyedJaggedTensor(
        [f"feature_{t}" for t in range(len(sizes.hotness))],
        torch.cat([part.reshape(-1) for part in workload.by_table(ids, sizes)]),
        lengths=lengths,
    )
    result.sync()
    result.offsets()  # cached: not a part of the step
    return result


class TorchRecTraining(TorchTraining):
    """A model of TorchRec in training, on batches in memory."""

    def __init__(
        self,
        rows: Rows,
        sizes: Sizes,
        weights: Mapping[str, torch.Tensor],
        *,
        optimizer: str = "adagrad",
        learning_rate: float = workload.LEARNING_RATE,
        precision: str = "float32",
        is_fused: bool,
    ):
        tables = make_tables(sizes, optimizer, learning_rate, is_fused)
        self.model = make_model(sizes, tables)
        copy_weights(self.model, sizes, weights)
        with_loss = DLRMTrain(self.model)
        is_mixed = precision == "bfloat16"

        def loss(batch: Rows) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_mixed):
                return with_loss(_Batch(batch))[0]

        moved = list(self.model.parameters())
        if is_fused:
            fused = {id(parameter) for parameter in tables.parameters()}
            moved = [parameter for parameter in moved if id(parameter) not in fused]
        options = optimizer_options(optimizer, learning_rate)
        super().__init__(loss, [OPTIMIZERS[optimizer](moved, **options)], rows, sizes.batch_size)
        self.batches = [b._replace(ids=jagged_ids(b.ids, sizes)) for b in self.batches]

    def logits(self) -> np.ndarray:
        """Logits of the first batch, [batch, 1]."""
        with torch.no_grad():
            return self.model(self.batches[0].numerical, self.batches[0].ids).numpy()


class _Batch:
    """The part of `torchrec.datasets.utils.Batch` that DLRMTrain reads."""

    def __init__(self, batch: Rows):
        self.dense_features, self.sparse_features = batch.numerical, batch.ids
        self.labels = batch.labels[:, 0]


def side(folder: Path, threads: int) -> Started:
    torch.set_num_threads(threads)
    rows, sizes = load(folder, Rows, Sizes)

    def start(**options) -> TorchRecTraining:
        return TorchRecTraining(rows, sizes, load_weights(folder), is_fused=True, **options)

    packages = ("torchrec", "torch", "fbgemm-gpu-cpu")
    return ", ".join(f"{package} {metadata.version(package)}" for package in packages), start
