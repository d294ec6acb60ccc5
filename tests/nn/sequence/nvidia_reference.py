"""The formulas of NVIDIA's SIM recipe in NumPy, one sample at a time, padding included."""

import numpy as np

from tests.nn.sequence.sequence_reference import Layers, sigmoid, softmax


class NvidiaReference(Layers):
    """A sample's logits from vectors."""

    def unit(self, name, target, keys):
        """Scores of an attention unit with hidden layers of 80 and 40 sigmoids."""
        rows = [np.concatenate([target, k, target - k, target * k]) for k in keys]
        return self.mlp(f"{name}.mlp", (80, 40), np.array(rows), "sigmoid")

    def attention(self, scores, real, keys):
        """softmax over the real keys; equal weights where none is real."""
        if real.any():
            scores = np.where(real, scores, -np.inf)
        else:
            scores = np.zeros(len(scores))
        return softmax(scores), softmax(scores) @ keys

    def gru(self, name, x):
        kernel, recurrent = self.weights[f"{name}.kernel"], self.weights[f"{name}.recurrent_kernel"]
        bias = self.weights[f"{name}.bias"]
        units = recurrent.shape[0]
        state, states = np.zeros(units), []
        for row in x:
            of_x = np.split(row @ kernel + bias[0], 3)
            of_h = np.split(state @ recurrent + bias[1], 3)
            update, reset = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
            candidate = np.tanh(of_x[2] + reset * of_h[2])
            state = update * state + (1 - update) * candidate
            states.append(state)
        return np.array(states)

    def augru(self, name, x, attention):
        names = ("gate_kernel", "gate_bias", "candidate_kernel", "candidate_bias")
        gate, gate_bias, kernel, bias = (self.weights[f"{name}.{part}"] for part in names)
        state = np.zeros(len(bias))
        for row, a in zip(x, attention, strict=True):
            reset, update = np.split(sigmoid(np.concatenate([row, state]) @ gate + gate_bias), 2)
            candidate = np.tanh(np.concatenate([row, reset * state]) @ kernel + bias)
            update = (1 - a) * update
            state = update * state + (1 - update) * candidate
        return state

    def dien(self, target, history, real):
        """(last state of the evolution, states of the interests)."""
        name = "interest_evolution"
        states = self.gru(f"{name}.gru", history)
        query = self.prelu(f"{name}.target_prelu", self.dense(f"{name}.target_dense", target))
        weights, _ = self.attention(self.unit(f"{name}.attention", query, states), real, states)
        return self.augru(f"{name}.augru", states, weights), states

    def search(self, target, keys, real):
        """(attention over the selected items, their mean / (count + 1), pooled history)."""
        weights, pooled = self.attention(keys @ target, real, keys)
        best = np.argsort(-weights, kind="stable")[: self.config.top_k]
        mask = weights[best] > 0
        _, attended = self.attention(keys[best] @ target, mask, keys[best])
        return attended, keys[best][mask].sum(axis=0) / (mask.sum() + 1), pooled

    def auxiliary(self, states, history, negatives, real):
        """(loss of a sample over its padded steps, whether it has a pair)."""
        name, dims = "interest_evolution.auxiliary_mlp", self.config.aux_mlp_dims

        def p(items):
            rows = np.concatenate([states[:-1], items], axis=1)
            return sigmoid(self.mlp(name, dims, rows, "sigmoid")) + 1e-6

        losses = -np.log(p(history[1:])) - np.log(1 - p(negatives[1:]))
        return np.mean(losses * real[1:])

    def score(self, user, target, history, negatives, real):
        """Returns the values of a sample by name: logit, and gsu and aux where there are any."""
        config, cut = self.config, self.config.short_start
        history, negatives = history * real[:, np.newaxis], negatives * real[:, np.newaxis]
        values, inputs = {}, [target]
        if config.model_type == "din":
            scores = history @ target
            if config.attention == "unit":
                scores = self.unit("attention.scores", target, history)
            inputs.append(self.attention(scores, real, history)[1])
        if config.model_type == "sim":
            attended, mean, pooled = self.search(target, history[:cut], real[:cut])
            stage_one = np.concatenate([target, pooled, user])
            values["gsu"] = self.mlp("stage_one_mlp", config.stage_one_mlp_dims, stage_one)
            inputs = [attended, mean, target]
        if config.model_type in ("sim", "dien"):
            last, states = self.dien(target, history[cut:], real[cut:])
            inputs.append(last)
            values["aux"] = self.auxiliary(states, history[cut:], negatives[cut:], real[cut:])
        x = np.concatenate([*inputs, user])
        values["logit"] = self.mlp("stage_two_mlp", config.stage_two_mlp_dims, x)
        return values
