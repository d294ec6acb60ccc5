"""The sequential recommenders again, in NumPy, sample by sample, as their papers have them.

DIN: Zhou et al., 2018; DIEN: Zhou et al., 2019; SIM: Pi et al., 2020. A history is a list of the
items that are there: what padding should do is to not exist.
"""

from typing import NamedTuple

import numpy as np


class Sample(NamedTuple):
    """One sample's vectors; items are [item_dim].

    Attributes:
      user: all user features side by side.
      target: the target item.
      long, short: the items of both histories, in order; the models without search have no long.
      negatives: for each item of the short history the one that did not follow.
      same_category: for each item of the long history whether it has the target's last feature.
    """

    user: np.ndarray
    target: np.ndarray
    long: list[np.ndarray]
    short: list[np.ndarray]
    negatives: list[np.ndarray]
    same_category: list[bool]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    powers = np.exp(np.asarray(scores) - np.max(scores))
    return powers / powers.sum()


class Layers:
    """The layers of a model.

    Args:
      config: a `SequenceModelConfig`.
      weights: dense weights by name, as in a checkpoint, without `dense/`.
    """

    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    def dense(self, name, x):
        return x @ self.weights[f"{name}.kernel"] + self.weights[f"{name}.bias"]

    def prelu(self, name, x):
        return np.where(x > 0, x, self.weights[f"{name}.slope"] * x)

    def mlp(self, name, dims, x, activation="prelu"):
        """Logits [...] of rows [..., width]."""
        for i in range(len(dims)):
            x = self.dense(f"{name}.dense_{i}", x)
            x = sigmoid(x) if activation == "sigmoid" else self.prelu(f"{name}.prelu_{i}", x)
        return self.dense(f"{name}.dense_{len(dims)}", x)[..., 0]


class Reference(Layers):
    """One model."""

    def recurrence(self, name, inputs, attention=None):
        """States after each input; DIEN, equations 2 to 5, and 16, 17 with attention."""
        kernels = np.split(self.weights[f"{name}.kernel"], 3, axis=1)
        recurrent = np.split(self.weights[f"{name}.recurrent_kernel"], 3, axis=1)
        biases = np.split(self.weights[f"{name}.bias"], 3)
        (w_r, w_u, w_h), (u_r, u_u, u_h), (b_r, b_u, b_h) = kernels, recurrent, biases
        state, states = np.zeros(len(b_r)), []
        for t, x in enumerate(inputs):
            u = sigmoid(x @ w_u + state @ u_u + b_u)
            r = sigmoid(x @ w_r + state @ u_r + b_r)
            candidate = np.tanh(x @ w_h + (r * state) @ u_h + b_h)
            if attention is not None:
                u = attention[t] * u
            state = (1 - u) * state + u * candidate
            states.append(state)
        return states

    def dot_attention(self, target, history):
        if not history:
            return np.zeros_like(target)
        weights = softmax([target @ item / np.sqrt(len(target)) for item in history])
        return sum(w * item for w, item in zip(weights, history, strict=True))

    def activation_unit(self, target, history):
        weights, total = self.weights, np.zeros_like(target)
        for item in history:
            x = np.concatenate([target, item, target - item, target * item])
            hidden = self.dense("attention", x)
            hidden = np.where(hidden > 0, hidden, weights["attention.slope"][:, 0] * hidden)
            score = hidden @ weights["attention.score_kernel"] + weights["attention.score_bias"]
            total = total + score * item
        return total

    def search(self, target, history):
        """(numbers of the selected items, pooled history) of the soft search."""
        if not history:
            return [], np.zeros_like(target)
        keys, query = (
            self.weights["long_history.search.keys"],
            self.weights["long_history.search.query"],
        )
        scores = [(item @ keys) @ (target @ query) / np.sqrt(len(target)) for item in history]
        pooled = sum(w * item for w, item in zip(softmax(scores), history, strict=True))
        best = sorted(range(len(history)), key=lambda j: (scores[j], j), reverse=True)
        return best[: self.config.top_k], pooled

    def exact_search(self, target, items, num_heads):
        keys = np.split(self.weights["long_history.exact_search.keys"], num_heads, axis=1)
        queries = np.split(self.weights["long_history.exact_search.query"], num_heads, axis=1)
        heads = []
        for key, query in zip(keys, queries, strict=True):
            if not items:
                heads.append(np.zeros_like(target))
                continue
            width = key.shape[1]
            weights = softmax([(i @ key) @ (target @ query) / np.sqrt(width) for i in items])
            heads.append(sum(w * item for w, item in zip(weights, items, strict=True)))
        return np.concatenate(heads)

    def evolution(self, target, history, negatives):
        """(last state, auxiliary loss of the sample)."""
        states = self.recurrence("interest_evolution.gru", history)
        last = np.zeros_like(target)
        if history:
            kernel = self.weights["interest_evolution.attention.kernel"]
            attention = softmax([state @ kernel @ target for state in states])
            last = self.recurrence("interest_evolution.augru", states, attention)[-1]
        losses = []
        for state, item, negative in zip(states, history[1:], negatives[1:], strict=False):
            for wanted, x in ((1, item), (0, negative)):
                row = np.concatenate([state, x])
                logit = self.mlp("auxiliary_mlp", self.config.aux_mlp_dims, row, "sigmoid")
                losses.append(-np.log(sigmoid(logit) if wanted else 1 - sigmoid(logit)))
        return last, sum(losses) / max(len(history) - 1, 1)

    def score(self, sample: Sample, num_heads: int = 4) -> dict[str, float]:
        """The logit; "gsu" and "aux", the search's logit and the auxiliary loss, where they are."""
        config, outputs = self.config, {}
        seen = [sample.user, sample.target]
        if config.model_type == "din":
            unit = config.attention == "unit"
            attend = self.activation_unit if unit else self.dot_attention
            seen.append(attend(sample.target, sample.short))
        if config.model_type == "sim":
            if config.gsu == "soft":
                chosen, pooled = self.search(sample.target, sample.long)
                row = np.concatenate([sample.user, sample.target, pooled])
                outputs["gsu"] = self.mlp("stage_one_mlp", config.stage_one_mlp_dims, row)
            else:
                alike = [j for j, same in enumerate(sample.same_category) if same]
                chosen = alike[-config.top_k :]
            items = [sample.long[j] for j in chosen]
            seen.append(self.exact_search(sample.target, items, num_heads))
        if config.model_type in ("sim", "dien"):
            state, outputs["aux"] = self.evolution(sample.target, sample.short, sample.negatives)
            seen.append(state)
        if config.history_product:
            history = [*sample.long, *sample.short] or [0 * sample.target]
            seen.append(sample.target * np.mean(history, axis=0))
        row = np.concatenate(seen)
        outputs["logit"] = self.mlp("stage_two_mlp", config.stage_two_mlp_dims, row)
        return outputs


def log_loss(label: float, logit: float) -> float:
    probability = sigmoid(logit)
    return -(label * np.log(probability) + (1 - label) * np.log(1 - probability))
