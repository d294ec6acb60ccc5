"""Options of `python -m deployment.deploy` and their rules."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from deployment.artifacts.table_files import INT8, NONE
from deployment.serving.interface import UNKNOWN_IS_ERROR
from deployment.triton.repository import check_name
from deployment.triton.tensorrt import check_precision

LOCAL, TENSORFLOW, HPS = "local", "tensorflow", "hps"
PRECISIONS = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class DeployOptions:
    """Options of one deployment, described by `python -m deployment.deploy --help`.

    Fields that only some deployments read default to None.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    checkpoint_dir: str
    model_repository: Path
    dataset_path: str | None = None
    model_name: str | None = None  # None: the recipe's
    backend: str = LOCAL
    monolithic: bool = False
    precision: str = "fp32"
    quantize_tables: str = NONE
    check_rows: int | None = None
    unknown_ids: str = UNKNOWN_IS_ERROR
    max_batch_size: int = 2048
    dynamic_batching: bool = True
    max_queue_delay_us: int | None = None
    instances: int = 1
    threads_per_instance: int | None = None
    execution_env: str | None = None
    device_memory_gb: float | None = None
    gpus: tuple[int, ...] | None = None
    gpu_cache_share: float | None = None
    served_path: str | None = None
    overwrite: bool = False

    @property
    def runs_in_half_precision(self) -> bool:
        """Returns whether a half-precision dense part as served can run here: in one SavedModel, or
        by OpenVINO, but not by TensorRT."""
        is_here = self.backend == LOCAL or self.is_one_saved_model
        return is_here and self.precision != "fp32"

    @property
    def is_one_saved_model(self) -> bool:
        """Returns whether TensorFlow serves lookups and dense part."""
        return self.backend == TENSORFLOW and self.monolithic

    def __post_init__(self):
        if self.model_name is not None:
            check_name(self.model_name)
        self._check_ranges()
        for backend, flag, is_refused, rule in _REFUSED:
            if backend in (None, self.backend) and is_refused(self):
                value = getattr(self, flag)
                shown = f"--{flag} {value}"
                if isinstance(value, bool):
                    shown = f"--{flag}" if value else f"--no-{flag}"
                raise ValueError(f"{shown}: {rule}")
        if self.backend != LOCAL and not self.monolithic:
            check_precision(self.precision)

    def _check_ranges(self) -> None:
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not minimum <= value < inf:
                finite = " and finite" if isinstance(value, float) else ""
                raise ValueError(f"--{name} must be {minimum} or more{finite}, got {value}")
        for name, maximum in _MAXIMUM.items():
            value = getattr(self, name)
            largest = max(value) if isinstance(value, tuple) else value
            if value is not None and largest > maximum:
                raise ValueError(
                    f"--{name} must be {maximum} or less, the limit of Triton's configuration, "
                    f"got {largest}"
                )
        if self.gpu_cache_share is not None and not 0 < self.gpu_cache_share <= 1:
            raise ValueError(
                "--gpu_cache_share is a share of each table's rows, more than 0 and at most 1, got "
                f"{self.gpu_cache_share:g}"
            )


_MINIMUM = {
    "max_batch_size": 1,
    "instances": 1,
    "check_rows": 0,
    "max_queue_delay_us": 0,
    "threads_per_instance": 0,
    "device_memory_gb": 0,
}

# Limits of the fields of Triton's messages, int32 and uint64.
_MAXIMUM = {
    "max_batch_size": 2**31 - 1,
    "instances": 2**31 - 1,
    "gpus": 2**31 - 1,
    "max_queue_delay_us": 2**64 - 1,
}

_Rule = tuple[str | None, str, Callable[[DeployOptions], bool], str]


def _is_set(flag: str) -> Callable[[DeployOptions], bool]:
    return lambda options: getattr(options, flag) is not None


# (backend, None for all; flag; whether its value is refused; the rule and advice).
_REFUSED: tuple[_Rule, ...] = (
    (
        None,
        "check_rows",
        lambda o: (
            o.check_rows is not None and o.quantize_tables == NONE and not o.runs_in_half_precision
        ),
        "these are the rows on which what is served is compared with what was trained, which needs "
        "--quantize_tables fp16 or int8, or --precision fp16 or bf16 of the backend local or of "
        "--backend tensorflow --monolithic",
    ),
    (
        None,
        "max_queue_delay_us",
        lambda o: bool(o.max_queue_delay_us) and not o.dynamic_batching,
        "requests wait for others to be put together with, which --no-dynamic_batching forbids: "
        "leave one of them out",
    ),
    (
        LOCAL,
        "device_memory_gb",
        _is_set("device_memory_gb"),
        "the backend local computes on the CPU, all tables are in the memory of the host: leave "
        "the flag out, or use --backend tensorflow",
    ),
    (
        TENSORFLOW,
        "device_memory_gb",
        lambda o: bool(o.device_memory_gb) and o.quantize_tables == INT8,
        "TensorFlow gathers no int8 on a GPU: use --quantize_tables fp16, or leave all tables on "
        "the host",
    ),
    (
        TENSORFLOW,
        "gpus",
        lambda o: bool(o.device_memory_gb) and o.gpus not in (None, (0,)),
        "--device_memory_gb places the tables of the SavedModel on GPU 0: leave one of "
        "the flags out, or let the server see the GPU that you mean alone (CUDA_VISIBLE_DEVICES)",
    ),
    (
        HPS,
        "device_memory_gb",
        _is_set("device_memory_gb"),
        "HPS keeps a share of each table on the GPU, not whole tables: use --gpu_cache_share",
    ),
    (
        HPS,
        "monolithic",
        lambda o: o.monolithic,
        "the backend hps looks rows up and does nothing else: leave the flag out, or use --backend "
        "tensorflow",
    ),
    (
        HPS,
        "quantize_tables",
        lambda o: o.quantize_tables != NONE,
        "HPS stores rows as float32: use --quantize_tables none, or --backend tensorflow or local",
    ),
    (
        HPS,
        "max_queue_delay_us",
        _is_set("max_queue_delay_us"),
        "HPS computes requests one by one, so that none waits for others: leave the flag out",
    ),
    (
        TENSORFLOW,
        "dynamic_batching",
        lambda o: not o.dynamic_batching,
        "of SavedModels and TensorRT plans Triton puts waiting requests together, whatever their "
        "configuration: leave the flag out",
    ),
    *(
        (
            backend,
            "threads_per_instance",
            _is_set("threads_per_instance"),
            "only the backend local computes on threads of its own: leave the flag out",
        )
        for backend in (TENSORFLOW, HPS)
    ),
    (
        LOCAL,
        "gpus",
        _is_set("gpus"),
        "the backend local computes on the CPU: leave the flag out",
    ),
    *(
        (backend, flag, _is_set(flag), "only the backend hps reads it: leave the flag out")
        for flag in ("gpu_cache_share", "served_path")
        for backend in (LOCAL, TENSORFLOW)
    ),
)
