"""The peer: TorchRec's DLRM and DLRM_DCN, as in MLPerf's reference, with our weights.

A side of `mlperf_training`. Tables of fbgemm with exact Adagrad, which the backward pass applies;
`torch.optim.Adagrad` for the dense weights, `torch.autocast`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.harness.torch_training import TorchTraining, copy_linears, load_weights
from benchmarks.harness.worker import load

OPTIMIZERS = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}


def make_tables(sizes, optimizer: dict) -> nn.Module:
    """Makes the tables, fbgemm's, whose backward pass moves the rows."""
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
    return FusedEmbeddingBagCollection(
        tables,
        optimizer_type=OPTIMIZERS[sizes.optimizer],
        optimizer_kwargs=optimizer,
        device=torch.device("cpu"),
    )


def make_model(sizes, tables: nn.Module) -> DLRM:
    dims = {
        "dense_in_features": sizes.num_numerical,
        "dense_arch_layer_sizes": list(sizes.bottom_mlp_dims),
        "over_arch_layer_sizes": list(sizes.top_mlp_dims),
    }
    if not sizes.num_cross_layers:
        return DLRM(tables, **dims)
    cross = {"dcn_num_layers": sizes.num_cross_layers, "dcn_low_rank_dim": sizes.cross_rank}
    return DLRM_DCN(tables, **dims, **cross)


@torch.no_grad()
def copy_weights(model: DLRM, sizes, weights: Mapping[str, torch.Tensor]) -> None:
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


def jagged_ids(ids: torch.Tensor, hotness: tuple[int, ...]) -> KeyedJaggedTensor:
    """Returns ids [n, sum of hotness] as TorchRec reads them: by feature, then by sample."""
    lengths = torch.tensor(hotness, dtype=torch.int32).repeat_interleave(len(ids))
    result = KeyedJaggedTensor(
        [f"feature_{t}" for t in range(len(hotness))],
        torch.cat([part.reshape(-1) for part in ids.long().split(hotness, 1)]),
        lengths=lengths,
    )
    result.sync()
    result.offsets()  # cached: not a part of the step
    return result


def start(folder: Path, precision: str) -> TorchTraining:
    """A model of TorchRec in training, on batches in memory."""
    rows, sizes = load(folder)
    options = {"lr": sizes.learning_rate}
    options |= {"eps": sizes.epsilon} if sizes.optimizer == "adagrad" else {}
    tables = make_tables(sizes, options)
    model = make_model(sizes, tables)
    copy_weights(model, sizes, load_weights(folder))
    with_loss = DLRMTrain(model)

    def loss(batch) -> torch.Tensor:
        # The part of `torchrec.datasets.utils.Batch` that DLRMTrain reads.
        features = {"dense_features": batch.numerical, "sparse_features": batch.ids}
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            return with_loss(SimpleNamespace(**features, labels=batch.labels[:, 0]))[0]

    fused = {id(parameter) for parameter in tables.parameters()}
    moved = [parameter for parameter in model.parameters() if id(parameter) not in fused]
    optimizer = OPTIMIZERS[sizes.optimizer](moved, **options)
    training = TorchTraining(loss, [optimizer], rows, sizes.batch_size)
    training.batches = [
        batch._replace(ids=jagged_ids(batch.ids, sizes.hotness)) for batch in training.batches
    ]
    training.model = model
    return training
