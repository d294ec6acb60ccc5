"""Flags of `python -m deployment.deploy` and their rules."""

import argparse
import dataclasses
from dataclasses import MISSING, dataclass
from pathlib import Path

from deployment.artifacts.table_files import INT8, NONE, QUANTIZATIONS
from deployment.option_checks import distinct_integers, refuse
from deployment.serving.interface import DENSE, SPARSE, UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO
from deployment.triton.repository import check_name
from deployment.triton.tensorrt import ONNX, SAVED_MODEL, TRT, check_precision
from runtime.options import check_limits, flag

LOCAL, TENSORFLOW, HPS = "local", "tensorflow", "hps"
# Tensors of requests and answers: those of this toolkit, or those of NVIDIA's deployment.
NATIVE, NVIDIA = "native", "nvidia"
RAW, ENCODED = "raw", "encoded"  # values of requests
PRECISIONS = ("fp32", "fp16", "bf16")

_MAX_INT32, _MAX_UINT64 = 2**31 - 1, 2**64 - 1  # of the fields of Triton's messages
_PART_NAME = "name of the part of an ensemble (default: NAME_"


@dataclass(frozen=True)
class DeployOptions:
    """Flags of one deployment. Those that only some deployments read default to None.

    Raises:
        ValueError: a value out of range, or flags that contradict each other.
    """

    checkpoint_dir: str = flag(
        MISSING, "a checkpoint, or a folder of them: the best one (--keep_best), else the newest"
    )
    model_repository: Path = flag(MISSING, "Triton's folder of models")
    dataset_path: str | None = flag(
        None, "data set of the training (default: its path in the training)"
    )
    model_name: str | None = flag(None, "(default: the recipe's name)")
    model_version: int = flag(1, "version folder of the model", at_least=1, at_most=_MAX_INT32)
    backend: str = flag(
        LOCAL,
        "the server: local, Triton's Python backend on the CPU, with onnxruntime or OpenVINO "
        "and tables that all instances share (default); tensorflow, SavedModels of the tables and "
        "TensorRT on a GPU; hps, Merlin's hierarchical parameter server and TensorRT",
        choices=(LOCAL, TENSORFLOW, HPS),
    )
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
    monolithic: bool = flag(False, "one model in place of an ensemble (not hps)")
    cpu: bool | None = flag(None, "all models run on the CPU (tensorflow)", read_by=(TENSORFLOW,))
    precision: str = flag(
        "fp32",
        "of the dense part (default fp32). local: fp16 and bf16 by OpenVINO. On a GPU bf16 "
        "needs trtexec here",
        choices=PRECISIONS,
    )
    quantize_tables: str = flag(
        NONE,
        "store rows of tables as float16, or as int8 with a float32 scale for each row "
        "(default none, float32); reports the AUC before and after (not hps)",
        choices=QUANTIZATIONS,
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
        action=argparse.BooleanOptionalAction,
    )
    max_queue_delay_us: int | None = flag(
        None,
        "time that a request waits for others (default 0)",
        at_least=0,
        at_most=_MAX_UINT64,
        read_by=(LOCAL, TENSORFLOW),
    )
    instances: int = flag(
        1, "concurrent copies of each model, or per GPU", at_least=1, at_most=_MAX_INT32
    )
    threads_per_instance: int | None = flag(
        None, "0: the cores divided by the copies (0; local)", at_least=0, read_by=(LOCAL,)
    )
    execution_env: str | None = flag(
        None, "Python environment of the models, as the server sees it"
    )
    device_memory_gb: float | None = flag(
        None, "budget for tables on a GPU (0; tensorflow)", at_least=0, read_by=(TENSORFLOW,)
    )
    gpus: tuple[int, ...] | None = flag(
        None,
        "GPUs with copies of the models, like 0,1, each with the tables that TensorFlow has "
        "on the host once more (default 0; not local)",
        at_least=0,
        at_most=_MAX_INT32,
        read_by=(TENSORFLOW, HPS),
        type=distinct_integers,
    )
    gpu_cache_share: float | None = flag(
        None, "share of rows on a GPU (default 0.5; hps)", at_least=1e-6, at_most=1, read_by=(HPS,)
    )
    served_path: str | None = flag(
        None, "--model_repository as the server of HPS sees it", read_by=(HPS,)
    )
    overwrite: bool = flag(False, "replace models that this tool wrote")
    top_items: int | None = flag(
        None,
        "answer the N items of highest score of each row, of all items, in place of the score "
        "of one item (checkpoints of sim and ncf, --monolithic, local)",
        at_least=1,
        read_by=(LOCAL,),
    )
    sparse_model_name: str | None = flag(None, f"{_PART_NAME}sparse)")
    dense_model_name: str | None = flag(None, f"{_PART_NAME}dense)")
    dense_format: str | None = flag(
        None,
        "dense part of an ensemble (tensorflow, hps): trt, TensorRT (default); onnx, "
        "onnxruntime in fp32 (default with --cpu); tf-savedmodel, TensorFlow",
        read_by=(TENSORFLOW, HPS),
        choices=(TRT, ONNX, SAVED_MODEL),
    )
    trt_optimal_batch_size: int | None = flag(
        None, "of TensorRT (default: --max_batch_size)", at_least=1, read_by=(TENSORFLOW, HPS)
    )
    fused_embedding: bool | None = flag(
        None, "store all tables as one, whose rows are the keys of requests (hps, --tensors nvidia)"
    )
    load_model: bool = flag(False, "let a running server load the models afterwards")
    server_url: str = flag("127.0.0.1:8001", "host:port of that server's gRPC")
    load_model_timeout_s: float = flag(120.0, "limit of the loading (default 120)", at_least=1e-3)

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
    def has_dense_saved_model(self) -> bool:
        """Returns whether TensorFlow serves the dense part, alone or with the lookups."""
        is_one = self.backend == TENSORFLOW and self.monolithic
        return is_one or (self.backend != LOCAL and self.served_dense_format == SAVED_MODEL)

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
        check_limits(self)
        for field in dataclasses.fields(self):
            value, backends = getattr(self, field.name), field.metadata["read_by"]
            if backends and value is not None and self.backend not in backends:
                raise ValueError(
                    f"--{field.name} {value}: the backend {self.backend} does not read it, only "
                    f"{' and '.join(backends)} do: leave the flag out"
                )
        refuse(self._contradictions_of_parts() | self._contradictions())
        if self.backend != LOCAL and not self.monolithic and self.served_dense_format == TRT:
            check_precision(self.precision)

    def _contradictions_of_parts(self) -> dict[str, object]:
        """Returns a flag and the reason of each contradiction, and whether it holds."""
        one, on_cpu, optimal = self.monolithic, self.cpu, self.trt_optimal_batch_size
        parts, has_plan = list(self.part_names.values()), self.served_dense_format == TRT
        names, device = {*parts, self.model_name}, self.device_memory_gb
        on_gpus = device or self.gpus is not None
        return {
            "--top_items: the recommender needs --monolithic": self.top_items and not one,
            "--sparse_model_name, --dense_model_name: --monolithic is one model": parts and one,
            "--model_name and names of parts: expected different ones": len(names) <= len(parts),
            "--dense_format: --monolithic is one SavedModel": self.dense_format and one,
            "--cpu: TensorRT runs on GPUs only": on_cpu and self.dense_format == TRT,
            "--trt_optimal_batch_size: no TensorRT plan": optimal and (one or not has_plan),
            "--trt_optimal_batch_size: above --max_batch_size": (optimal or 0)
            > self.max_batch_size,
            "--cpu: no table on a GPU for --device_memory_gb and --gpus": on_cpu and on_gpus,
            "--device_memory_gb: no int8 on a GPU": device and self.quantize_tables == INT8,
            "--gpus: --device_memory_gb places tables on GPU 0; see CUDA_VISIBLE_DEVICES": (
                device and self.gpus not in (None, (0,))
            ),
        }

    def _contradictions(self) -> dict[str, object]:
        hps, nvidia = self.backend == HPS, self.tensors == NVIDIA
        quantized, waits = self.quantize_tables != NONE, self.dynamic_batching
        changed = quantized or self.runs_in_half_precision
        checked, fused = self.check_rows is not None, self.fused_embedding is not None
        unchecked = nvidia and self.backend != LOCAL
        return {
            "--inputs raw: --tensors nvidia are encoded": nvidia and self.inputs == RAW,
            "--check_rows: no score changes without --quantize_tables, or half --precision of "
            "--backend local or of a SavedModel": checked and not changed,
            "--max_queue_delay_us: --no-dynamic_batching": self.max_queue_delay_us and not waits,
            "--fused_embedding: it is for --backend hps --tensors nvidia": (
                fused and not (hps and nvidia)
            ),
            "--unknown_ids zero: with --tensors nvidia no model checks requests": (
                unchecked and self.unknown_ids == UNKNOWN_IS_ZERO
            ),
            "--monolithic: --backend hps does lookups alone": hps and self.monolithic,
            f"--quantize_tables {self.quantize_tables}: HPS has float32 rows": hps and quantized,
            "--no-dynamic_batching: Triton batches for SavedModels and plans anyway": (
                self.backend == TENSORFLOW and not waits
            ),
        }
