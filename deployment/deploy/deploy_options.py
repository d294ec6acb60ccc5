"""Options of `python -m deployment.deploy` and their rules."""

from dataclasses import dataclass
from pathlib import Path

from deployment.artifacts.table_files import INT8, NONE
from deployment.option_checks import check_ranges
from deployment.serving.interface import DENSE, SPARSE, UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO
from deployment.triton.repository import check_name
from deployment.triton.tensorrt import ONNX, SAVED_MODEL, TRT, check_precision

LOCAL, TENSORFLOW, HPS = "local", "tensorflow", "hps"
# Tensors of requests and answers: those of this toolkit, or those of NVIDIA's deployment.
NATIVE, NVIDIA = "native", "nvidia"
PRECISIONS = ("fp32", "fp16", "bf16")

# Backends of the flags that not all of them read.
_READ_BY = {
    "device_memory_gb": (TENSORFLOW,),
    "gpus": (TENSORFLOW, HPS),
    "gpu_cache_share": (HPS,),
    "served_path": (HPS,),
    "threads_per_instance": (LOCAL,),
    "top_items": (LOCAL,),
    "max_queue_delay_us": (LOCAL, TENSORFLOW),
    "dense_format": (TENSORFLOW, HPS),
    "trt_optimal_batch_size": (TENSORFLOW, HPS),
    "cpu": (TENSORFLOW,),
}
_MINIMUM = {
    "max_batch_size": 1,
    "model_version": 1,
    "top_items": 1,
    "trt_optimal_batch_size": 1,
    "load_model_timeout_s": 1e-3,
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
    "model_version": 2**31 - 1,
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
    sparse_model_name: str | None = None  # None: that of the ensemble and the role
    dense_model_name: str | None = None
    model_version: int = 1
    backend: str = LOCAL
    tensors: str = NATIVE
    dense_format: str | None = None  # None: TensorRT, or ONNX with `cpu`
    trt_optimal_batch_size: int | None = None  # None: max_batch_size
    cpu: bool | None = None
    monolithic: bool = False
    top_items: int | None = None  # None: scores of the items of requests
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
    fused_embedding: bool | None = None
    overwrite: bool = False
    load_model: bool = False
    server_url: str = "127.0.0.1:8001"
    load_model_timeout_s: float = 120.0

    @property
    def part_names(self) -> dict[str, str]:
        """Returns names of parts of the ensemble by role, as far as they were given."""
        names = {SPARSE: self.sparse_model_name, DENSE: self.dense_model_name}
        return {role: name for role, name in names.items() if name is not None}

    @property
    def served_dense_format(self) -> str:
        """Returns the format of the dense part on the backends tensorflow and hps."""
        return self.dense_format or (ONNX if self.cpu else TRT)

    @property
    def is_one_saved_model(self) -> bool:
        """Returns whether TensorFlow serves lookups and dense part."""
        return self.backend == TENSORFLOW and self.monolithic

    @property
    def has_dense_saved_model(self) -> bool:
        """Returns whether TensorFlow serves the dense part, alone or with the lookups."""
        return self.is_one_saved_model or (
            self.backend != LOCAL and self.served_dense_format == SAVED_MODEL
        )

    @property
    def runs_in_half_precision(self) -> bool:
        """Returns whether a half-precision dense part as served can run here: in a SavedModel, or
        by OpenVINO, but not by TensorRT."""
        is_here = self.backend == LOCAL or self.has_dense_saved_model
        return is_here and self.precision != "fp32"

    def __post_init__(self):
        for name in (self.model_name, *self.part_names.values()):
            if name is not None:
                check_name(name)
        check_ranges(vars(self), _MINIMUM, _MAXIMUM)
        for flag, backends in _READ_BY.items():
            value = getattr(self, flag)
            if value is not None and self.backend not in backends:
                raise ValueError(
                    f"--{flag} {value}: the backend {self.backend} does not read it, only "
                    f"{' and '.join(backends)} do: leave the flag out"
                )
        for is_broken, message in (*self._rules_of_parts(), *self._rules()):
            if is_broken:
                raise ValueError(message)
        if self.backend != LOCAL and not self.monolithic and self.served_dense_format == TRT:
            check_precision(self.precision)

    def _rules_of_parts(self) -> tuple[tuple[bool, str], ...]:
        """Returns rules, as `_rules`, of names, tensors and formats of an ensemble's parts."""
        names = list(self.part_names.values())
        return (
            (
                self.top_items is not None and not self.monolithic,
                f"--top_items {self.top_items}: the recommender is one model: give --monolithic",
            ),
            (
                bool(names) and self.monolithic,
                f"--sparse_model_name and --dense_model_name: got {', '.join(names)} with "
                "--monolithic, which is one model: leave them out",
            ),
            (
                len({*names, self.model_name}) <= len(names),
                "--model_name, --sparse_model_name and --dense_model_name: expected different "
                f"names, got {self.model_name}, {', '.join(names)}",
            ),
            (
                self.dense_format is not None and self.monolithic,
                f"--dense_format {self.dense_format}: with --monolithic the dense part is in the "
                "SavedModel of the tables: leave the flag out",
            ),
            (
                bool(self.cpu) and self.dense_format == TRT,
                "--cpu: TensorRT runs on GPUs only: use --dense_format onnx or tf-savedmodel",
            ),
            (
                bool(self.cpu) and (bool(self.device_memory_gb) or self.gpus is not None),
                "--cpu: no part of the model is on a GPU: leave --device_memory_gb and --gpus out",
            ),
            (
                self.trt_optimal_batch_size is not None
                and (self.monolithic or self.served_dense_format != TRT),
                f"--trt_optimal_batch_size {self.trt_optimal_batch_size}: it is for TensorRT plans "
                "(--dense_format trt): leave the flag out",
            ),
            (
                self.trt_optimal_batch_size is not None
                and self.trt_optimal_batch_size > self.max_batch_size,
                f"--trt_optimal_batch_size {self.trt_optimal_batch_size}: expected at most the "
                f"--max_batch_size, {self.max_batch_size}",
            ),
            (
                self.fused_embedding is not None
                and not (self.backend == HPS and self.tensors == NVIDIA),
                "--fused_embedding: it merges the tables of --backend hps --tensors nvidia: leave "
                "the flag out",
            ),
            (
                self.tensors == NVIDIA
                and self.unknown_ids == UNKNOWN_IS_ZERO
                and self.backend != LOCAL,
                "--unknown_ids zero: with --tensors nvidia no model checks requests before the "
                "lookup: leave the flag out, or use --tensors native",
            ),
        )

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
