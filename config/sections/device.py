"""Flags of the precision, the device and its threads."""

import math
from dataclasses import dataclass

from config.flag import OWN, Need, Rules, excludes, flag


def read_loss_scale(text: str) -> float | str:
    """Returns the number of `--loss_scale`, or "dynamic".

    Raises:
        ValueError: the text is neither, or the number is below 1.
    """
    if text == "dynamic":
        return text
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 1 <= scale < math.inf:
        raise ValueError(
            f"--loss_scale: expected dynamic or a number of at least 1, got {text}; pass, for "
            "example, --loss_scale dynamic or --loss_scale 65536"
        )
    return scale


@dataclass(frozen=True)
class DeviceConfig:
    """Precision, device and threads."""

    amp: bool | None = flag(
        False, "use mixed precision; float16 with loss scaling on a GPU, bfloat16 on a CPU"
    )
    loss_scale: str = Rules(
        check=read_loss_scale,
        used_with=(Need("with --amp", lambda flags: flags.value("amp") is not False),),
    ).flag(
        "65536",
        "loss scale of float16 training, or dynamic; a number is at least 1; dynamic starts at "
        "32768, halves at a non-finite gradient and doubles after 2,000 steps without one",
    )
    cpu: bool = Rules(resume=OWN).flag(False, "do not use GPUs")
    xla: bool = Rules(used_with=(excludes("run_eagerly"),)).flag(
        False, "compile operations with XLA where it can fuse them"
    )
    deterministic: bool = flag(
        False, "make runs on the same hardware bitwise reproducible; slower on a GPU"
    )
    affinity: str = Rules(
        resume=OWN,
        choices=(
            *("disabled", "socket", "socket_single", "socket_single_unique"),
            *("socket_unique_interleaved", "socket_unique_continuous"),
        ),
    ).flag(
        "disabled",
        "binding of each process to cores; socket: those of its GPU's socket; socket_single: one "
        "of them; socket_single_unique: one that no other process has; socket_unique_interleaved "
        "and socket_unique_continuous: an exclusive share of them, assigned round-robin or in "
        "contiguous blocks",
    )
    inter_op_parallelism: int | None = Rules(resume=OWN, is_local=True, at_least=0).flag(
        None, "threads that run operations concurrently"
    )
    intra_op_parallelism: int | None = Rules(resume=OWN, is_local=True, at_least=0).flag(
        None, "threads within an operation"
    )
    run_eagerly: bool = Rules(resume=OWN).flag(False, "run without tf.function, for debugging")
    tfdata_debug: bool = Rules(resume=OWN).flag(False, "run tf.data eagerly, for debugging")
