"""Flags of `python -m deployment.deploy` and their rules."""

import functools
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import CommandOptions, parse_variant, refuse, separated
from config.flag import excludes, flag, recipe_flag, requires
from deployment.artifacts.table_files import INT8, NONE, QUANTIZATIONS
from deployment.serving.interface import DENSE, SPARSE, UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO
from deployment.triton.repository import check_name
from deployment.triton.tensorrt import ONNX, SAVED_MODEL, TRT, check_precision

LOCAL, TENSORFLOW, HPS = "local", "tensorflow", "hps"
# Tensors of requests and answers: those of this toolkit, or those of NVIDIA's deployment.
NATIVE, NVIDIA = "native", "nvidia"
RAW, ENCODED = "raw", "encoded"  # values of requests
PRECISIONS = ("fp32", "fp16", "bf16")

_MAX_INT32, _MAX_UINT64 = 2**31 - 1, 2**64 - 1  # of the fields of Triton's messages
_PART_NAME = "name of the part of an ensemble (default: NAME_"


_backend_flag = functools.partial(
    flag,
    help_text="the server: local, Triton's Python backend on the CPU, with onnxruntime or OpenVINO "
    "and tables that all instances share (default); tensorflow, SavedModels of the tables and "
    "TensorRT on a GPU; hps, Merlin's hierarchical parameter server and TensorRT",
    choices=(LOCAL, TENSORFLOW, HPS),
)


@dataclass(frozen=True)
class DeployOptions(CommandOptions):
    """Flags of a deployment to any backend; each backend has a class of all of its flags."""

    checkpoint_dir: str = flag(
        MISSING, "a checkpoint, or a folder of them: the best one (--keep_best), else the newest"
    )
    model_repository: Path = flag(MISSING, "Triton's folder of models")
    dataset_path: str | None = flag(
        None, "data set of the training (default: its path in the training)"
    )
    recipe: str | None = recipe_flag()
    model_name: str | None = flag(None, "(default: the recipe's name)")
    model_version: int = flag(1, "version folder of the model", at_least=1, at_most=_MAX_INT32)
    backend: str = _backend_flag(LOCAL)
    tensors: str = flag(
        NATIVE,
        "tensors of requests and answers: native, int64 ids and scores (default); nvidia, "
        "those of NVIDIA's deployment of DLRM and DCNv2, which its clients send: int32 ids, or "
        "keys with hps, and logits as DENSE_OUTPUT",
        choices=(NATIVE, NVIDIA),
    )
    inputs: str | None = flag(
        None,
        "raw, rows with the columns of the data before its preparation; encoded, ids and numbers "
        "as in the prepared data set (default: raw on a data set with an encoder, with "
        "--tensors native; else encoded)",
        choices=(RAW, ENCODED),
    )
    fill_missing: str | None = flag(
        None,
        "fill missing numbers of raw requests where the training's data had none: with 'mean', of "
        "the training, 0 or another value (default: a bad request)",
    )
    precision: str = flag(
        "fp32",
        "of the dense part (default fp32). local: fp16 and bf16 by OpenVINO. On a GPU bf16 "
        "needs trtexec here",
        choices=PRECISIONS,
    )
    check_rows: int | None = flag(
        None,
        "compare the AUC as trained and as served, of smaller tables or half precision, on "
        "the first N evaluation rows (default: all); 0: no comparison",
        at_least=0,
    )
    unknown_ids: str = flag(
        UNKNOWN_IS_ERROR,
        "ids of at least the cardinality: a bad request (default), or mapped to id 0",
        choices=(UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO),
    )
    max_batch_size: int = flag(
        2048, "maximum rows per request and batch", at_least=1, at_most=_MAX_INT32
    )
    dynamic_batching: bool = flag(
        True,
        "batch waiting requests (default yes; hps and a monolithic SavedModel never do)",
    )
    instances: int = flag(
        1, "concurrent copies of each model, or per GPU", at_least=1, at_most=_MAX_INT32
    )
    execution_env: str | None = flag(
        None, "Python environment of the models, as the server sees it"
    )
    overwrite: bool = flag(False, "replace models that this tool wrote")
    sparse_model_name: str | None = flag(None, f"{_PART_NAME}sparse)")
    dense_model_name: str | None = flag(None, f"{_PART_NAME}dense)")
    load_model: bool = flag(False, "let a running server load the models afterwards")
    server_url: str = flag("127.0.0.1:8001", "host:port of that server's gRPC")
    load_model_timeout_s: float = flag(120.0, "limit of the loading (default 120)", at_least=1e-3)

    # On backends without these flags.
    monolithic = False
    quantize_tables = NONE
    max_queue_delay_us = top_items = threads_per_instance = None

    @property
    def part_names(self) -> dict[str, str]:
        """Returns names of parts of the ensemble by role, as far as they were given."""
        names = {SPARSE: self.sparse_model_name, DENSE: self.dense_model_name}
        return {role: name for role, name in names.items() if name is not None}

    @property
    def has_dense_saved_model(self) -> bool:
        """Returns whether TensorFlow serves the dense part, alone or with the lookups."""
        return False

    @property
    def runs_in_half_precision(self) -> bool:
        """Returns whether a half-precision dense part as served can run here: in a SavedModel, or
        by OpenVINO, but not by TensorRT."""
        is_here = self.backend == LOCAL or self.has_dense_saved_model
        return is_here and self.precision != "fp32"

    def __post_init__(self):
        super().__post_init__()
        for name in (self.model_name, *self.part_names.values()):
            if name is not None:
                check_name(name)
        refuse(self._contradictions())

    def _contradictions(self) -> dict[str, object]:
        """Returns a flag and the reason of each contradiction, and whether it holds."""
        parts = list(self.part_names.values())
        changed = self.quantize_tables != NONE or self.runs_in_half_precision
        return {
            "--sparse_model_name, --dense_model_name: --monolithic is one model": parts
            and self.monolithic,
            "--model_name and names of parts: expected different ones": (
                len({*parts, self.model_name}) <= len(parts)
            ),
            "--inputs raw: --tensors nvidia are encoded": (
                self.tensors == NVIDIA and self.inputs == RAW
            ),
            "--check_rows: no score changes without --quantize_tables, or half --precision of "
            "--backend local or of a SavedModel": self.check_rows is not None and not changed,
        }


@dataclass(frozen=True)
class _WholeModelOptions(DeployOptions):
    """Flags of backends that serve tables of any precision, also within one model."""

    monolithic: bool = flag(False, "one model in place of an ensemble")
    quantize_tables: str = flag(
        NONE,
        "store rows of tables as float16, or as int8 with a float32 scale for each row "
        "(default none, float32); reports the AUC before and after",
        choices=QUANTIZATIONS,
    )
    max_queue_delay_us: int | None = flag(
        None,
        "time that a request waits for others (default 0)",
        at_least=0,
        at_most=_MAX_UINT64,
        needs=(requires("dynamic_batching"),),
    )


@dataclass(frozen=True)
class LocalOptions(_WholeModelOptions):
    """Flags of a deployment to Triton's Python backend."""

    threads_per_instance: int | None = flag(
        None, "0: the cores divided by the copies (0)", at_least=0
    )
    top_items: int | None = flag(
        None,
        "answer the N items of highest score of each row, of all items, in place of the score "
        "of one item (checkpoints of sim and ncf, --monolithic)",
        at_least=1,
        needs=(requires("monolithic"),),
    )


@dataclass(frozen=True)
class _GpuOptions(DeployOptions):
    """Flags of backends whose dense part runs on GPUs."""

    gpus: tuple[int, ...] | None = flag(
        None,
        "GPUs with copies of the models, like 0,1, each with the tables that TensorFlow has "
        "on the host once more (default 0)",
        at_least=0,
        at_most=_MAX_INT32,
        parse=separated(int),
    )
    dense_format: str | None = flag(
        None,
        "dense part of an ensemble: trt, TensorRT (default); onnx, "
        "onnxruntime in fp32 (default with --cpu); tf-savedmodel, TensorFlow",
        needs=(excludes("monolithic"),),
        choices=(TRT, ONNX, SAVED_MODEL),
    )
    trt_optimal_batch_size: int | None = flag(
        None, "of TensorRT (default: --max_batch_size)", at_least=1
    )

    cpu = None  # on backends without this flag

    @property
    def served_dense_format(self) -> str:
        """Returns the format of the dense part."""
        return self.dense_format or (ONNX if self.cpu else TRT)

    @property
    def has_dense_saved_model(self) -> bool:
        return self.monolithic or self.served_dense_format == SAVED_MODEL

    def __post_init__(self):
        super().__post_init__()
        if not self.monolithic and self.served_dense_format == TRT:
            check_precision(self.precision)

    def _contradictions(self) -> dict[str, object]:
        optimal = self.trt_optimal_batch_size or 0
        has_plan = self.served_dense_format == TRT and not self.monolithic
        is_zero = self.unknown_ids == UNKNOWN_IS_ZERO
        return super()._contradictions() | {
            "--trt_optimal_batch_size: no TensorRT plan": optimal and not has_plan,
            "--trt_optimal_batch_size: above --max_batch_size": optimal > self.max_batch_size,
            "--unknown_ids zero: with --tensors nvidia no model checks requests": (
                is_zero and self.tensors == NVIDIA
            ),
        }


@dataclass(frozen=True)
class TensorFlowOptions(_WholeModelOptions, _GpuOptions):
    """Flags of a deployment to SavedModels of the tables, and TensorRT."""

    backend: str = _backend_flag(TENSORFLOW)
    cpu: bool | None = flag(None, "all models run on the CPU")
    device_memory_gb: float | None = flag(None, "budget for tables on a GPU (0)", at_least=0)

    def _contradictions(self) -> dict[str, object]:
        device, on_cpu = self.device_memory_gb, self.cpu
        on_gpus = device or self.gpus is not None
        return super()._contradictions() | {
            "--cpu: TensorRT runs on GPUs only": on_cpu and self.dense_format == TRT,
            "--cpu: no table on a GPU for --device_memory_gb and --gpus": on_cpu and on_gpus,
            "--device_memory_gb: no int8 on a GPU": device and self.quantize_tables == INT8,
            "--gpus: --device_memory_gb places tables on GPU 0; see CUDA_VISIBLE_DEVICES": (
                device and self.gpus not in (None, (0,))
            ),
            "--no-dynamic_batching: Triton batches for SavedModels and plans anyway": (
                not self.dynamic_batching
            ),
        }


@dataclass(frozen=True)
class HpsOptions(_GpuOptions):
    """Flags of a deployment to Merlin's hierarchical parameter server, and TensorRT."""

    backend: str = _backend_flag(HPS)
    gpu_cache_share: float | None = flag(
        None, "share of rows on a GPU (default 0.5)", at_least=1e-6, at_most=1
    )
    served_path: str | None = flag(None, "--model_repository as the server of HPS sees it")
    fused_embedding: bool | None = flag(
        None, "store all tables as one, whose rows are the keys of requests (--tensors nvidia)"
    )

    def _contradictions(self) -> dict[str, object]:
        return super()._contradictions() | {
            "--fused_embedding: it is for --backend hps --tensors nvidia": (
                self.fused_embedding is not None and self.tensors != NVIDIA
            ),
        }


BACKENDS = {LOCAL: LocalOptions, TENSORFLOW: TensorFlowOptions, HPS: HpsOptions}


def parse(argv: list[str]) -> DeployOptions:
    """Reads the command line; raises ValueError as `DeployOptions` does."""
    return parse_variant(
        BACKENDS,
        "backend",
        argv,
        "deployment.deploy",
        "Writes a trained model of any recipe as models of Triton Inference Server: lookups, the "
        "dense part, and an ensemble of both, or one model. They appear in the repository when all "
        "of them are complete.",
    )
