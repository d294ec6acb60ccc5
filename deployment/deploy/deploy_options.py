"""Options of `python -m deployment.deploy` and their rules."""

from dataclasses import dataclass
from pathlib import Path

from deployment.artifacts.table_files import INT8, NONE
from deployment.option_checks import check_ranges
from deployment.serving.interface import UNKNOWN_IS_ERROR
from deployment.triton.repository import check_name
from deployment.triton.tensorrt import check_precision

LOCAL, TENSORFLOW, HPS = "local", "tensorflow", "hps"
PRECISIONS = ("fp32", "fp16", "bf16")

# Backends of the flags that not all of them read.
_READ_BY = {
    "device_memory_gb": (TENSORFLOW,),
    "gpus": (TENSORFLOW, HPS),
    "gpu_cache_share": (HPS,),
    "served_path": (HPS,),
    "threads_per_instance": (LOCAL,),
    "max_queue_delay_us": (LOCAL, TENSORFLOW),
}
_MINIMUM = {
    "max_batch_size": 1,
    "instances": 1,
    "check_rows": 0,
    "max_queue_delay_us": 0,
    "threads_per_instance": 0,
    "device_memory_gb": 0,
    "gpus": 0,
    "gpu_cache_share": 1e-6,
}
# Mostly limits of the fields of Triton's messages, int32 and uint64.
_MAXIMUM = {
    "max_batch_size": 2**31 - 1,
    "instances": 2**31 - 1,
    "gpus": 2**31 - 1,
    "max_queue_delay_us": 2**64 - 1,
    "gpu_cache_share": 1,
}


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
    def is_one_saved_model(self) -> bool:
        """Returns whether TensorFlow serves lookups and dense part."""
        return self.backend == TENSORFLOW and self.monolithic

    @property
    def runs_in_half_precision(self) -> bool:
        """Returns whether a half-precision dense part as served can run here: in one SavedModel, or
        by OpenVINO, but not by TensorRT."""
        is_here = self.backend == LOCAL or self.is_one_saved_model
        return is_here and self.precision != "fp32"

    def __post_init__(self):
        if self.model_name is not None:
            check_name(self.model_name)
        check_ranges(vars(self), _MINIMUM, _MAXIMUM)
        for flag, backends in _READ_BY.items():
            value = getattr(self, flag)
            if value is not None and self.backend not in backends:
                raise ValueError(
                    f"--{flag} {value}: the backend {self.backend} does not read it, only "
                    f"{' and '.join(backends)} do: leave the flag out"
                )
        for is_broken, message in self._rules():
            if is_broken:
                raise ValueError(message)
        if self.backend != LOCAL and not self.monolithic:
            check_precision(self.precision)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        """Returns whether each rule of flags that depend on each other is broken, and its text."""
        is_quantized, is_on_device = self.quantize_tables != NONE, bool(self.device_memory_gb)
        return (
            (
                self.check_rows is not None and not (is_quantized or self.runs_in_half_precision),
                f"--check_rows {self.check_rows}: these are the rows on which what is served is "
                "compared with what was trained, which needs --quantize_tables fp16 or int8, or "
                "--precision fp16 or bf16 of the backend local or of --backend tensorflow "
                "--monolithic",
            ),
            (
                bool(self.max_queue_delay_us) and not self.dynamic_batching,
                f"--max_queue_delay_us {self.max_queue_delay_us}: requests wait for others to be "
                "batched with, which --no-dynamic_batching forbids: leave one of them out",
            ),
            (
                is_on_device and self.quantize_tables == INT8,
                f"--device_memory_gb {self.device_memory_gb}: TensorFlow gathers no int8 on a GPU: "
                "use --quantize_tables fp16, or leave all tables on the host",
            ),
            (
                is_on_device and self.gpus not in (None, (0,)),
                f"--gpus {self.gpus}: --device_memory_gb places the tables of the SavedModel on "
                "GPU 0: leave one of the flags out, or let the server see the GPU that you mean "
                "alone (CUDA_VISIBLE_DEVICES)",
            ),
            (
                self.backend == HPS and self.monolithic,
                "--monolithic: the backend hps looks rows up and does nothing else: leave the flag "
                "out, or use --backend tensorflow",
            ),
            (
                self.backend == HPS and is_quantized,
                f"--quantize_tables {self.quantize_tables}: HPS stores rows as float32: use "
                "--quantize_tables none, or --backend tensorflow or local",
            ),
            (
                self.backend == TENSORFLOW and not self.dynamic_batching,
                "--no-dynamic_batching: of SavedModels and TensorRT plans Triton batches waiting "
                "requests, whatever their configuration: leave the flag out",
            ),
        )
