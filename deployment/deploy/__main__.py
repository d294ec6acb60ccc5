"""Writes a trained model as models of Triton Inference Server.

python -m deployment.deploy --checkpoint_dir runs/demo/checkpoint --model_repository repository
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from deployment import nvidia_flags
from deployment.artifacts.table_files import QUANTIZATIONS
from deployment.deploy.deploy_options import (
    HPS,
    LOCAL,
    NATIVE,
    NVIDIA,
    PRECISIONS,
    TENSORFLOW,
    DeployOptions,
)
from deployment.option_checks import distinct_integers
from deployment.serving.interface import UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO
from deployment.triton.tensorrt import ONNX, SAVED_MODEL, TRT
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error, 130 after Ctrl-C or
    SIGTERM."""

    def work() -> None:
        options = DeployOptions(**vars(_parser().parse_args(nvidia_flags.DEPLOY.translate(argv))))
        # TensorFlow takes seconds to import: flags are checked first.
        from deployment.deploy.deployer import deploy

        print(deploy(options))

    with interrupted_by_sigterm():
        return exit_status(work, "interrupted; the repository has all new models or none of them")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.deploy",
        description="Writes a trained model of any recipe as models of Triton Inference Server: "
        "lookups, the dense part, and an ensemble of both, or one model. They appear in the "
        "repository when all of them are complete.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    best = "a checkpoint, or a folder of them: the best one (--keep_best), else the newest"
    add("--checkpoint_dir", required=True, help=best)
    add("--model_repository", required=True, type=Path, help="Triton's folder of models")
    add("--dataset_path", help="data set of the training (default: its path in the training)")
    add("--model_name", help="(default: the recipe's name)")
    add("--model_version", type=int, help="version folder of the model (default 1)")
    add(
        "--backend",
        choices=(LOCAL, TENSORFLOW, HPS),
        help="the server: local, Triton's Python backend on the CPU, with onnxruntime or OpenVINO "
        "and tables that all instances share (default); tensorflow, SavedModels of the tables and "
        "TensorRT on a GPU; hps, Merlin's hierarchical parameter server and TensorRT",
    )
    add(
        "--tensors",
        choices=(NATIVE, NVIDIA),
        help="tensors of requests and answers: native, int64 ids and scores (default); nvidia, "
        "those of NVIDIA's deployment of DLRM and DCNv2, which its clients send: int32 ids, or "
        "keys with hps, and logits as DENSE_OUTPUT",
    )
    add("--monolithic", action="store_true", help="one model in place of an ensemble (not hps)")
    add("--cpu", action="store_true", help="all models run on the CPU (tensorflow)")
    add(
        "--precision",
        choices=PRECISIONS,
        help="of the dense part (default fp32). local: fp16 and bf16 by OpenVINO. On a GPU bf16 "
        "needs trtexec here",
    )
    add(
        "--quantize_tables",
        choices=QUANTIZATIONS,
        help="store rows of tables as float16, or as int8 with a float32 scale for each row "
        "(default none, float32); reports the AUC before and after (not hps)",
    )
    add(
        "--check_rows",
        type=int,
        help="compare the AUC as trained and as served, of smaller tables or half precision, on "
        "the first N evaluation rows (default: all); 0: no comparison",
    )
    add(
        "--unknown_ids",
        choices=(UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO),
        help="ids of at least the cardinality: a bad request (default), or mapped to id 0",
    )
    add("--max_batch_size", type=int, help="maximum rows per request and batch (default 2048)")
    add(
        "--dynamic_batching",
        action=argparse.BooleanOptionalAction,
        help="batch waiting requests (default yes; hps and a monolithic SavedModel never do)",
    )
    add("--max_queue_delay_us", type=int, help="time that a request waits for others (default 0)")
    add("--instances", type=int, help="concurrent copies of each model, or per GPU (default 1)")
    add("--threads_per_instance", type=int, help="0: the cores divided by the copies (0; local)")
    add("--execution_env", help="Python environment of the models, as the server sees it")
    add("--device_memory_gb", type=float, help="budget for tables on a GPU (0; tensorflow)")
    add(
        "--gpus",
        type=distinct_integers,
        help="GPUs with copies of the models, like 0,1, each with the tables that TensorFlow has "
        "on the host once more (default 0; not local)",
    )
    add("--gpu_cache_share", type=float, help="share of rows on a GPU (default 0.5; hps)")
    add("--served_path", help="--model_repository as the server of HPS sees it")
    add("--overwrite", action="store_true", help="replace models that this tool wrote")
    _add_other_flags(add)
    return parser


def _add_other_flags(add: Callable) -> None:
    """Adds flags of recommenders, of an ensemble's parts and of a running server."""
    add(
        "--top_items",
        type=int,
        help="answer the N items of highest score of each row, of all items, in place of the score "
        "of one item (checkpoints of sim and ncf, --monolithic, local)",
    )
    part = "name of the part of an ensemble (default: NAME_"
    add("--sparse_model_name", help=f"{part}sparse)")
    add("--dense_model_name", help=f"{part}dense)")
    add(
        "--dense_format",
        choices=(TRT, ONNX, SAVED_MODEL),
        help="dense part of an ensemble (tensorflow, hps): trt, TensorRT (default); onnx, "
        "onnxruntime in fp32 (default with --cpu); tf-savedmodel, TensorFlow",
    )
    add("--trt_optimal_batch_size", type=int, help="of TensorRT (default: --max_batch_size)")
    add(
        "--fused_embedding",
        action="store_true",
        help="store all tables as one, whose rows are the keys of requests (hps, --tensors nvidia)",
    )
    add("--load_model", action="store_true", help="let a running server load the models afterwards")
    add("--server_url", help="host:port of that server's gRPC (default 127.0.0.1:8001)")
    add("--load_model_timeout_s", type=float, help="limit of the loading (default 120)")


if __name__ == "__main__":
    sys.exit(main())
