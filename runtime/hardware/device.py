"""Device of the model: GPU or CPU, threads, XLA, precision."""

import contextlib
import functools
import os
import platform
import random
from dataclasses import dataclass, field, replace
from importlib import metadata

from distributed_embeddings.collectives import World

from runtime.hardware.gpu import Gpu
from runtime.hardware.memory import RankMemory, agree_on_memory, read_memory


@dataclass(frozen=True)
class Device:
    """Device and precision of a run.

    Attributes:
        kind: "GPU" or "CPU".
        compute_dtype: dtype of activations: "float32", or with --amp "float16" (GPU) and
            "bfloat16" (CPU). Weights are float32 always.
        loss_scale: factor on the loss before the backward pass, or "dynamic"; 1.0 unless
            compute_dtype is float16, whose smallest normal number 6e-5 would lose small gradients
            (Micikevicius et al., 2018).
        gpu: the process's GPU, not part of the text and the equality of a Device, which ranks
            compare; None on a CPU, or if the driver does not identify it.
        memory: for the tables of a rank, the same on all ranks (`with_memory`).
    """

    kind: str
    compute_dtype: str
    loss_scale: float | str
    gpu: Gpu | None = field(default=None, repr=False, compare=False)
    memory: RankMemory = field(default=RankMemory(), repr=False, compare=False)

    @property
    def policy(self) -> str:
        """Name of the Keras dtype policy: float32 weights, `compute_dtype` activations."""
        return "float32" if self.compute_dtype == "float32" else f"mixed_{self.compute_dtype}"


@functools.cache
def available_cores() -> int:
    """Returns the number of cores this process was started with, before `--affinity` binds it."""
    return len(os.sched_getaffinity(0))


def with_memory(device: Device, world: World) -> Device:
    """Returns `device` with the least memory of all ranks; a collective."""
    memory = read_memory(device.kind, device.gpu, world.local_size)
    return replace(device, memory=agree_on_memory(memory, world))


def choose_seed(seed: int | None) -> int:
    """Returns `seed`, or one from the system's entropy."""
    return random.SystemRandom().randrange(2**31) if seed is None else seed


def describe() -> dict[str, object]:
    """Returns facts of machine and software that a result depends on, for the log."""
    import numpy as np
    import tensorflow as tf

    installed = {}
    for package in ("tf_keras", "horovod", "tensorflow_dot_based_interact"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        **installed,
        "cores": available_cores(),
        "machine": platform.machine(),
    }
