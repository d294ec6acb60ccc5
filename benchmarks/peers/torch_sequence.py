"""The peer: SIM, DIEN and DIN as a practitioner writes them in plain PyTorch.

A side of `sequence_training`. `nn.Embedding`, `nn.Linear`, `nn.PReLU`, `torch.bmm`,
`torch.topk`, a loop over the steps of the recurrences with one input projection for all of them.
"""

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness.torch_training import (
    TorchTraining,
    adam_optimizers,
    copy_linears,
    load_weights,
)
from benchmarks.harness.worker import load

NUM_HEADS = 4  # of SIM's exact search
EPSILON = 1e-7  # the recipe's, added to the root of the biased second moment; so in SparseAdam
# PyTorch's Adam adds it to the corrected root: in the first step, of beta2 = 0.999, this is equal.
CORRECTED_EPSILON = EPSILON / math.sqrt(1 - 0.999)


class TorchClassifier(nn.Module):
    """Linear layers with an activation between them, one logit."""

    def __init__(self, inputs: int, dims: tuple[int, ...], sigmoid: bool = False):
        super().__init__()
        layers = []
        for dim in dims:
            layers += [nn.Linear(inputs, dim), nn.Sigmoid() if sigmoid else nn.PReLU(dim)]
            inputs = dim
        self.stack = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, x):
        """[..., inputs] -> [...]."""
        return self.stack(x).squeeze(-1)

    def load(self, weights: dict[str, torch.Tensor], name: str) -> None:
        copy_linears(self.stack, weights, name)
        for i, prelu in enumerate(layer for layer in self.stack if isinstance(layer, nn.PReLU)):
            prelu.weight.copy_(weights[f"{name}.prelu_{i}.slope"])


class TorchRecurrence(nn.Module):
    """GRU or, with an attention, AUGRU; the reset gate before the product."""

    def __init__(self, dim: int):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(dim, 3 * dim))
        self.recurrent_kernel = nn.Parameter(torch.empty(dim, 3 * dim))
        self.bias = nn.Parameter(torch.empty(3 * dim))

    def forward(self, x, scale):
        """x [batch, steps, dim], scale [batch, steps, 1] -> list of states [batch, dim]."""
        dim = x.shape[2]
        projected = torch.addmm(self.bias, x.transpose(0, 1).reshape(-1, dim), self.kernel)
        projected = projected.view(x.shape[1], -1, 3 * dim).unbind(0)
        of_gates, of_candidate = self.recurrent_kernel.split([2 * dim, dim], dim=1)
        state, states = x.new_zeros(x.shape[0], dim), []
        for step, scale_t in zip(projected, scale.unbind(1), strict=True):
            gates, candidate = step.split([2 * dim, dim], dim=1)
            reset, update = torch.sigmoid(torch.addmm(gates, state, of_gates)).chunk(2, dim=1)
            candidate = torch.tanh(torch.addmm(candidate, reset * state, of_candidate))
            state = torch.lerp(state, candidate, scale_t * update)
            states.append(state)
        return states

    def load(self, weights: dict[str, torch.Tensor], name: str) -> None:
        for part in ("kernel", "recurrent_kernel", "bias"):
            getattr(self, part).copy_(weights[f"{name}.{part}"])


class TorchInterestEvolution(nn.Module):
    """DIEN's block and its auxiliary loss (Zhou et al., 2019)."""

    def __init__(self, dim: int, aux_dims: tuple[int, ...]):
        super().__init__()
        self.gru, self.augru = TorchRecurrence(dim), TorchRecurrence(dim)
        self.attention = nn.Parameter(torch.empty(dim, dim))
        self.auxiliary = TorchClassifier(2 * dim, aux_dims, sigmoid=True)

    def forward(self, target, history, negatives, mask):
        """The last state [batch, dim] and the auxiliary loss."""
        real = mask.unsqueeze(2).to(history.dtype)
        states = torch.stack(self.gru(history, real), dim=1)
        scores = torch.bmm(states, (target @ self.attention.T).unsqueeze(2)).squeeze(2)
        attention = masked_softmax(scores, mask)
        last = self.augru(history, attention.unsqueeze(2))[-1]
        before, pairs = states[:, :-1], (mask[:, :-1] & mask[:, 1:]).to(history.dtype)
        own = self.auxiliary(torch.cat([before, history[:, 1:]], dim=2))
        other = self.auxiliary(torch.cat([before, negatives], dim=2))
        losses = (functional.softplus(-own) + functional.softplus(other)) * pairs
        return last, (losses.sum(1) / pairs.sum(1).clamp(min=1)).mean()

    def load(self, weights: dict[str, torch.Tensor], name: str) -> None:
        self.gru.load(weights, f"{name}.gru")
        self.augru.load(weights, f"{name}.augru")
        self.attention.copy_(weights[f"{name}.attention.kernel"])
        self.auxiliary.load(weights, "auxiliary_mlp")


def masked_softmax(scores, mask):
    """Softmax over the last axis among the True places; zeros where all are False."""
    return torch.softmax(scores.masked_fill(~mask, -1e30), dim=-1) * mask


class TorchSequenceModel(nn.Module):
    """SIM (Pi et al., 2020), DIEN (Zhou et al., 2019) or DIN (Zhou et al., 2018)."""

    def __init__(self, sizes, sparse: bool, model_type: str):
        super().__init__()
        self.model_type, self.sizes = model_type, sizes
        dim, item_dim = sizes.embedding_dim, 2 * sizes.embedding_dim  # item and category
        self.user = nn.Embedding(sizes.users, dim, sparse=sparse)
        self.item = nn.Embedding(sizes.items, dim, sparse=sparse)
        self.category = nn.Embedding(sizes.categories, dim, sparse=sparse)
        width = dim + 2 * item_dim
        if model_type == "sim":
            self.of_query = nn.Parameter(torch.empty(item_dim, item_dim))
            self.of_keys = nn.Parameter(torch.empty(item_dim, item_dim))
            self.stage_one = TorchClassifier(width, sizes.stage_one_mlp_dims)
            heads = NUM_HEADS * -(-item_dim // NUM_HEADS)
            self.heads_query = nn.Parameter(torch.empty(item_dim, heads))
            self.heads_keys = nn.Parameter(torch.empty(item_dim, heads))
            width += NUM_HEADS * item_dim
        if model_type in ("sim", "dien"):
            self.evolution = TorchInterestEvolution(item_dim, sizes.aux_mlp_dims)
        self.stage_two = TorchClassifier(width, sizes.stage_two_mlp_dims)

    def vectors(self, items, categories):
        """[batch, n] each -> [batch, n, item_dim]."""
        return torch.cat([self.item(items), self.category(categories)], dim=2)

    def forward(self, rows):
        """The total loss of a batch of tensors."""
        user = self.user(rows.user).squeeze(1)
        target = self.vectors(rows.target_item, rows.target_category).squeeze(1)
        history = self.vectors(rows.positive_item, rows.positive_category)
        mask, seen, loss = rows.positive_item != 0, [user, target], 0.0
        start = self.sizes.long_seq_length if self.model_type == "sim" else 0
        if self.model_type == "din":
            scores = torch.bmm(history, target.unsqueeze(2)).squeeze(2)
            weights = masked_softmax(scores / math.sqrt(history.shape[2]), mask)
            seen.append(torch.bmm(weights.unsqueeze(1), history).squeeze(1))
        if self.model_type == "sim":
            chosen, pooled = self.search(target, history[:, :start], mask[:, :start])
            gsu_logits = self.stage_one(torch.cat([user, target, pooled], dim=1))
            loss = loss + cross_entropy(gsu_logits, rows.labels)
            seen.append(self.attend(target, *chosen))
        if self.model_type in ("sim", "dien"):
            after = slice(start + 1, None)
            negatives = self.vectors(rows.negative_item[:, after], rows.negative_category[:, after])
            last, auxiliary = self.evolution(target, history[:, start:], negatives, mask[:, start:])
            loss = loss + auxiliary
            seen.append(last)
        return loss + cross_entropy(self.stage_two(torch.cat(seen, dim=1)), rows.labels)

    def search(self, target, keys, mask):
        """((selected keys, their mask), pooled keys) of SIM's soft search."""
        query = (target @ self.of_query) @ self.of_keys.T
        scores = torch.bmm(keys, query.unsqueeze(2)).squeeze(2) / math.sqrt(keys.shape[2])
        pooled = torch.bmm(masked_softmax(scores, mask).unsqueeze(1), keys).squeeze(1)
        places = scores.detach().masked_fill(~mask, -1e30).topk(self.sizes.top_k, dim=1).indices
        chosen = keys.gather(1, places.unsqueeze(2).expand(-1, -1, keys.shape[2]))
        return (chosen, mask.gather(1, places)), pooled

    def attend(self, target, keys, mask):
        """SIM's exact search: the target asks the selected keys with several heads."""
        heads, dim = NUM_HEADS, keys.shape[2]
        width = self.heads_query.shape[1] // heads
        query = (target @ self.heads_query).view(-1, heads, width)
        kernel = self.heads_keys.view(dim, heads, width)
        query = torch.einsum("bhw,dhw->bhd", query, kernel)
        scores = torch.bmm(query, keys.transpose(1, 2)) / math.sqrt(width)
        weights = masked_softmax(scores, mask.unsqueeze(1))
        return torch.bmm(weights, keys).flatten(1)

    @torch.no_grad()
    def load(self, weights: dict[str, torch.Tensor]) -> None:
        for name in ("user", "item", "category"):
            getattr(self, name).weight.copy_(weights[name])
        self.stage_two.load(weights, "stage_two_mlp")
        if self.model_type in ("sim", "dien"):
            self.evolution.load(weights, "interest_evolution")
        if self.model_type == "sim":
            self.stage_one.load(weights, "stage_one_mlp")
            for name, part in (("of", "search"), ("heads", "exact_search")):
                getattr(self, f"{name}_query").copy_(weights[f"long_history.{part}.query"])
                getattr(self, f"{name}_keys").copy_(weights[f"long_history.{part}.keys"])


def cross_entropy(logits, labels):
    return functional.binary_cross_entropy_with_logits(logits, labels.squeeze(1))


def start(folder: Path, tables: str, model_type: str) -> TorchTraining:
    rows, sizes = load(folder)
    model = TorchSequenceModel(sizes, tables == "lazy", model_type)
    model.load(load_weights(folder))
    epsilons = (EPSILON, CORRECTED_EPSILON)
    optimizers = adam_optimizers(model, tables, *epsilons, lr=sizes.learning_rate)
    return TorchTraining(model, optimizers, rows, sizes.batch_size)
