"""Steps of Keras' optimizers on embedding tables by the compiled update.

Keras' optimizers, new and legacy, take such a step for the tables of this package's layers, with
their own formulas, slots and schedules: the gradients of a row are summed and the row is moved in
one pass. All other variables, and other optimizers, options, dtypes and dense gradients take
Keras' own step.

    new      SGD (momentum, Nesterov), Adagrad, Adam, AdamW, RMSprop
    legacy   SGD (momentum, Nesterov), Adagrad, Adam, RMSprop

Rows without a gradient move, or stay, as in Keras (docs/optimizers.md). One slot differs: that of
new SGD without momentum, which no formula reads, stays zero.

Keras' own step: `amsgrad`, `centered`, slots in 16 bits, and on GPUs all but SGD, legacy Adagrad,
Adam, `LazyAdam` and `RowWiseAdagrad`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from distributed_embeddings.exchange.bag_gradients import BagGradient
from distributed_embeddings.keras import keras
from distributed_embeddings.ops import kernels


class Step(NamedTuple):
    """Update of a table, see `distributed_embeddings.ops.embedding_bag.update`."""

    kind: str
    slots: tuple[tf.Variable, ...]
    learning_rate: Any
    epsilon: Any = 0.0
    beta1: Any = 0.0
    beta2: Any = 0.0
    attributes: tuple[str, ...] = ()

    def is_possible(self) -> bool:
        """Returns whether the compiled update supports the slots, and on a GPU the formula."""
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
        needs_cpu = self.attributes or self.kind in ("momentum", "nesterov", "rmsprop")
        return all(slot.dtype == tf.float32 for slot in self.slots) and not (on_gpu and needs_cpu)

    def take(self, variable: tf.Variable, gradient: tf.IndexedSlices) -> tf.Operation | None:
        """Moves a table."""
        scalars = (self.learning_rate, 1.0, self.epsilon, self.beta1, self.beta2)
        attributes = dict.fromkeys(self.attributes, True)
        bag_gradient = BagGradient.of_slices(variable, gradient)
        return bag_gradient.update(self.kind, self.slots, *scalars, **attributes)


# ---- formulas of the new optimizers: of an optimizer, for its variable of a number ---------------


def _sgd(optimizer, i: int) -> Step:
    rate, momentum = optimizer.learning_rate, optimizer.momentum
    if isinstance(momentum, (int, float)) and momentum == 0:
        return Step("sgd", (), rate)
    kind = "nesterov" if optimizer.nesterov else "momentum"
    slots = (optimizer.momentums[i],)
    return Step(kind, slots, rate, beta1=momentum, attributes=("all_rows",))


def _adagrad(optimizer, i: int) -> Step:
    slots, epsilon = (optimizer._accumulators[i],), optimizer.epsilon
    return Step("adagrad", slots, optimizer.learning_rate, epsilon, attributes=("epsilon_in_root",))


def adam_step(optimizer, i: int, kind: str = "adam") -> Step | None:
    """Returns the step of new Adam for its variable number i, with both bias corrections."""
    if optimizer.amsgrad:
        return None
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    beta1, beta2 = (tf.cast(beta, tf.float32) for beta in (optimizer.beta_1, optimizer.beta_2))
    root = tf.sqrt(1.0 - beta2**step)
    rate = tf.cast(optimizer.learning_rate, tf.float32) * root / (1.0 - beta1**step)
    epsilon = optimizer.epsilon
    if getattr(optimizer, "adaptive_epsilon", False):
        epsilon *= root
    slots = (optimizer._momentums[i], optimizer._velocities[i])
    return Step(kind, slots, rate, epsilon, beta1, beta2)


def _rmsprop(optimizer, i: int) -> Step | None:
    if optimizer.centered:
        return None
    slots = (optimizer._velocities[i], *(optimizer._momentums[i : i + 1]))
    scalars = (optimizer.learning_rate, optimizer.epsilon, optimizer.momentum, optimizer.rho)
    return Step("rmsprop", slots, *scalars, attributes=("all_rows", "epsilon_in_root"))


# ---- formulas of the legacy optimizers: of an optimizer, for a variable, with its coefficients ---


def _legacy_sgd(optimizer, variable, numbers) -> Step:
    if "momentum" not in optimizer.get_slot_names():
        return Step("sgd", (), numbers["lr_t"])
    kind = "nesterov" if optimizer.nesterov else "momentum"
    slots = (optimizer.get_slot(variable, "momentum"),)
    return Step(kind, slots, numbers["lr_t"], beta1=numbers["momentum"])


def _legacy_adagrad(optimizer, variable, numbers) -> Step:
    slots = (optimizer.get_slot(variable, "accumulator"),)
    return Step("adagrad", slots, numbers["lr_t"], numbers["epsilon"])


def _legacy_adam(optimizer, variable, numbers) -> Step | None:
    if optimizer.amsgrad:
        return None
    slots = (optimizer.get_slot(variable, "m"), optimizer.get_slot(variable, "v"))
    names = ("lr", "epsilon", "beta_1_t", "beta_2_t")
    return Step("adam", slots, *(numbers[name] for name in names))


def _legacy_rmsprop(optimizer, variable, numbers) -> Step | None:
    if optimizer.centered:
        return None
    names, attributes = ("rms",), ("all_rows",)
    if "momentum" in optimizer.get_slot_names():
        names, attributes = ("rms", "momentum"), ("epsilon_in_root",)
    slots = tuple(optimizer.get_slot(variable, name) for name in names)
    scalars = (numbers[name] for name in ("lr_t", "epsilon", "momentum", "rho"))
    return Step("rmsprop", slots, *scalars, attributes=attributes)


# By the method that holds Keras' formula: a subclass with a formula of its own is another one.
FORMULAS: dict[Callable, Callable] = {
    keras.optimizers.SGD.update_step: _sgd,
    keras.optimizers.Adagrad.update_step: _adagrad,
    keras.optimizers.Adam.update_step: adam_step,
    keras.optimizers.AdamW.update_step: adam_step,
    keras.optimizers.RMSprop.update_step: _rmsprop,
    keras.optimizers.legacy.SGD._resource_apply_sparse: _legacy_sgd,
    keras.optimizers.legacy.Adagrad._resource_apply_sparse: _legacy_adagrad,
    keras.optimizers.legacy.Adam._resource_apply_sparse: _legacy_adam,
    keras.optimizers.legacy.RMSprop._resource_apply_sparse: _legacy_rmsprop,
}


def _new_step(optimizer, gradient, variable) -> Step | None:
    formula = FORMULAS.get(type(optimizer).update_step)
    i = optimizer._index_dict.get(optimizer._var_key(variable))
    if formula is None or i is None or not isinstance(gradient, tf.IndexedSlices):
        return None
    return formula(optimizer, i)


def _legacy_step(optimizer, variable, apply_state) -> Step | None:
    formula = FORMULAS.get(type(optimizer)._resource_apply_sparse)
    if formula is None:
        return None
    place = variable.device, variable.dtype.base_dtype
    numbers = (apply_state or {}).get(place) or optimizer._fallback_apply_state(*place)
    return formula(optimizer, variable, numbers)


def _is_fused(variable) -> bool:
    mark = getattr(variable, "de_table", None)
    return mark is not None and mark.compiled and kernels.support(variable)


def _fuse_new(original):
    @tf.autograph.experimental.do_not_convert
    def update(self, gradient, variable, *key):
        step = _new_step(self, gradient, variable) if _is_fused(variable) else None
        if step is None or not step.is_possible():
            return original.__get__(self, type(self))(gradient, variable, *key)
        return step.take(variable, gradient)

    return update


def _fuse_legacy(original):
    @tf.autograph.experimental.do_not_convert
    def update(self, grad, variable, indices, **kwargs):
        step = None
        if _is_fused(variable):
            step = _legacy_step(self, variable, kwargs.get("apply_state"))
        if step is None or not step.is_possible():
            return original(self, grad, variable, indices, **kwargs)
        return step.take(variable, tf.IndexedSlices(grad, indices))

    return update


@functools.cache
def _fuse_optimizers() -> None:
    sparse = "_resource_apply_sparse_duplicate_indices"
    for owner, name, fuse in (
        (keras.optimizers.Optimizer, "_update_step", _fuse_new),
        (keras.optimizers.Optimizer, "_update_step_xla", _fuse_new),
        (keras.optimizers.legacy.Optimizer, sparse, _fuse_legacy),
        (keras.optimizers.legacy.SGD, sparse, _fuse_legacy),
    ):
        setattr(owner, name, fuse(getattr(owner, name)))


class TableMark(NamedTuple):
    """Attribute `de_table` of a variable that holds tables.

    Attributes:
        compiled: Whether the compiled operations may be used.
        whole_rows: Whether this rank has all columns of the tables.
    """

    compiled: bool
    whole_rows: bool = True


def mark_table(variable: tf.Variable, mark: TableMark) -> None:
    """Marks a variable: from now on, Keras' optimizers take fused steps of marked variables."""
    variable.de_table = mark
    _fuse_optimizers()
