"""The command line of `python -m deployment.deploy`."""

import argparse
from pathlib import Path

from deployment.artifacts.table_files import QUANTIZATIONS
from deployment.deploy.deploy_options import HPS, LOCAL, PRECISIONS, TENSORFLOW, DeployOptions
from deployment.serving.interface import UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO


def parse(argv: list[str] | None = None) -> DeployOptions:
    """Reads the command line.

    Raises:
        ValueError: see `DeployOptions`. (argparse itself exits on an unknown flag.)
    """
    flags = vars(_parser().parse_args(argv))
    return DeployOptions(**{name: value for name, value in flags.items() if value is not None})


def _gpus(text: str) -> tuple[int, ...]:
    numbers = tuple(int(item) for item in text.split(","))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError
    return numbers


_gpus.__name__ = "list of different numbers of GPUs like 0,1"  # argparse shows it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.deploy",
        description="Writes a trained model of any recipe as models of Triton Inference Server: "
        "lookups, the dense part, and an ensemble of both, or one model. They appear in the "
        "repository when all of them are complete.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--checkpoint_dir",
        required=True,
        metavar="DIR",
        help="a checkpoint, or a training's folder of them: the best one (--keep_best), else the "
        "newest",
    )
    add(
        "--model_repository",
        required=True,
        type=Path,
        metavar="DIR",
        help="Triton's folder of models; created if it does not exist",
    )
    add(
        "--dataset_path",
        metavar="DIR",
        help="data set of the training (default: its path in the training)",
    )
    add("--model_name", metavar="NAME", help="(default: the recipe's name)")
    add(
        "--backend",
        choices=(LOCAL, TENSORFLOW, HPS),
        help="the server: local, Triton's Python backend on the CPU, with onnxruntime or OpenVINO "
        "and tables that all instances share (default); tensorflow, SavedModels of the tables and "
        "TensorRT on a GPU; hps, Merlin's hierarchical parameter server and TensorRT",
    )
    add(
        "--monolithic",
        action="store_true",
        default=None,
        help="one model in place of an ensemble (not hps)",
    )
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
        metavar="N",
        help="compare the AUC as trained and as served, of smaller tables or half precision, on "
        "the first N evaluation rows (default: all); 0: no comparison",
    )
    add(
        "--unknown_ids",
        choices=(UNKNOWN_IS_ERROR, UNKNOWN_IS_ZERO),
        help="ids of at least the cardinality: a bad request (default), or mapped to id 0",
    )
    add(
        "--max_batch_size",
        type=int,
        metavar="N",
        help="maximum rows per request and per batch (default 2048)",
    )
    add(
        "--dynamic_batching",
        action=argparse.BooleanOptionalAction,
        help="batch waiting requests (default yes; hps and a monolithic SavedModel never do)",
    )
    add(
        "--max_queue_delay_us",
        type=int,
        metavar="US",
        help="dynamic-batching queue delay in microseconds (default 0)",
    )
    add(
        "--instances",
        type=int,
        metavar="N",
        help="concurrent copies of each model, per GPU for models on GPUs (default 1)",
    )
    add(
        "--threads_per_instance",
        type=int,
        metavar="N",
        help="threads of each copy; 0: the server's cores divided by the copies (default; local)",
    )
    add(
        "--execution_env",
        metavar="PATH",
        help="Python environment of the models in Python, as the server sees it (default: that of "
        "the server)",
    )
    add(
        "--device_memory_gb",
        type=float,
        metavar="GB",
        help="GPU memory budget for tables in GB, smallest tables first (default 0: all on the "
        "host; tensorflow)",
    )
    add(
        "--gpus",
        type=_gpus,
        metavar="0,1,...",
        help="GPUs with copies of the models, each with the tables that TensorFlow has on the host "
        "once more (default 0; not local)",
    )
    add(
        "--gpu_cache_share",
        type=float,
        metavar="SHARE",
        help="share of each table's rows that HPS keeps on a GPU, up to 1 (default 0.5)",
    )
    add(
        "--served_path",
        metavar="DIR",
        help="where the server of HPS has the repository (default: --model_repository, absolute)",
    )
    add(
        "--overwrite",
        action="store_true",
        default=None,
        help="replace models of these names, if this tool wrote them",
    )
    return parser
