"""Device of the model: GPU or CPU, threads, XLA, precision."""

import contextlib
import functools
import os
import platform
import random
from dataclasses import dataclass, field, replace
from importlib import metadata

from distributed_embeddings.collectives import World

import config as configuration
from runtime.hardware.gpu import Gpu, identify
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


def set_up(flags: configuration.DeviceConfig, local_rank: int = 0, local_size: int = 1) -> Device:
    """Configures TensorFlow for this process; must run before TensorFlow touches a device.

    Processes of one machine share its cores unless `--intra_op_parallelism` is set: N processes
    with one thread per core each would mostly wait for each other. A process uses the visible GPU
    of its local rank; `runtime.hardware.gpu.check_not_shared` finds processes that share one.

    Raises:
        ValueError: TensorFlow is initialised already, so that the settings would be ignored.
    """
    if flags.xla:
        # "Lite": only what XLA can fuse. Matrix products stay with the vendor's library, which
        # also is 2.5 times as fast as XLA for bfloat16 on a CPU.
        xla_flags = os.environ.get("TF_XLA_FLAGS", "")
        xla_flags += " --tf_xla_auto_jit=fusible --tf_xla_cpu_global_jit"
        os.environ["TF_XLA_FLAGS"] = xla_flags.strip()
    import tensorflow as tf

    available_cores()
    try:
        _set_threads(flags, local_size)
        number = _choose_gpu(flags, local_rank)
    except RuntimeError as error:
        raise ValueError(
            f"TensorFlow was initialised before the device was chosen ({error}): "
            "start the recipe in a process of its own"
        ) from None
    if flags.deterministic:
        tf.random.set_seed(0)  # required; no random number of ours depends on it
        tf.config.experimental.enable_op_determinism()
    tf.config.run_functions_eagerly(flags.run_eagerly)
    if flags.tfdata_debug:
        tf.data.experimental.enable_debug_mode()
    kind, gpu = ("CPU", None) if number is None else ("GPU", identify(number))
    if not (kind == "GPU" if flags.amp is None else flags.amp):
        return Device(kind, "float32", 1.0, gpu)
    if kind == "GPU":
        return Device(kind, "float16", configuration.read_loss_scale(flags.loss_scale), gpu)
    return Device(kind, "bfloat16", 1.0, gpu)


def _set_threads(flags: configuration.DeviceConfig, local_size: int) -> None:
    import tensorflow as tf

    if flags.inter_op_parallelism is not None:
        tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_parallelism)
    threads = flags.intra_op_parallelism
    if threads is None and local_size > 1:
        threads = max(1, available_cores() // local_size)
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def _choose_gpu(flags: configuration.DeviceConfig, local_rank: int) -> int | None:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    number = local_rank % len(gpus) if gpus and not flags.cpu else None
    chosen = [] if number is None else [gpus[number]]
    if gpus:
        tf.config.set_visible_devices(chosen, "GPU")
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)
    return number


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
