"""Set-up of the device from the flags: GPU or CPU, threads, XLA, precision."""

import os

from config.sections.device import DeviceConfig, read_loss_scale
from runtime.hardware.device import Device, available_cores
from runtime.hardware.gpu import identify


def set_up(flags: DeviceConfig, local_rank: int = 0, local_size: int = 1) -> Device:
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
        return Device(kind, "float16", read_loss_scale(flags.loss_scale), gpu)
    return Device(kind, "bfloat16", 1.0, gpu)


def _set_threads(flags: DeviceConfig, local_size: int) -> None:
    import tensorflow as tf

    if flags.inter_op_parallelism is not None:
        tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_parallelism)
    threads = flags.intra_op_parallelism
    if threads is None and local_size > 1:
        threads = max(1, available_cores() // local_size)
    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def _choose_gpu(flags: DeviceConfig, local_rank: int) -> int | None:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    number = local_rank % len(gpus) if gpus and not flags.cpu else None
    chosen = [] if number is None else [gpus[number]]
    if gpus:
        tf.config.set_visible_devices(chosen, "GPU")
    for gpu in chosen:
        tf.config.experimental.set_memory_growth(gpu, True)
    return number
