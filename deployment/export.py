"""One plain model of a checkpoint of any recipe, tables included, for whoever serves such models.

    python -m deployment.export --checkpoint_dir runs/model --output runs/served --format onnx

SavedModels need TensorFlow alone. Of ONNX models the tables are in a file beside the model, which
onnxruntime maps into memory.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from dataloading.spec.output_folder import check_replaceable
from deployment.artifacts.table_files import NONE, QUANTIZATIONS, STORED_AS
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted
from runtime.files.atomic import atomic_folder

SAVED_MODEL, ONNX = "savedmodel", "onnx"
ONNX_FILE = "model.onnx"


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the model is there, 2 (130 for Ctrl-C and SIGTERM) with a
    message otherwise."""
    flags = _parser().parse_args(argv)
    with interrupted_by_sigterm():
        return exit_status(
            lambda: print(export(flags)), "interrupted; nothing was written under --output"
        )


def export(flags: argparse.Namespace) -> str:
    """Writes the model that the flags ask for; returns what was made, for people."""
    output = Path(flags.output)
    check_replaceable(output)  # before gigabytes are read
    from deployment.artifacts import saved_models
    from deployment.model.served_model import make_dense, serving_spec_of
    from deployment.model.trained_model import open_checkpoint

    trained = open_checkpoint(flags.checkpoint_dir, flags.dataset_path)
    serving_spec, dense = serving_spec_of(trained), make_dense(trained)
    said = [f"{trained.recipe} of {trained.path}"]
    with atomic_folder(output) as folder:
        if flags.format == SAVED_MODEL:
            saved_models.write_monolithic(
                dense, serving_spec, trained, folder, quantize=flags.quantize_tables
            )
        else:
            said.append(_write_onnx(dense, serving_spec, trained, folder, flags.quantize_tables))
        size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        raise_if_interrupted()
    named = ", ".join(
        f"{t.name} {t.dtype} [{', '.join(['batch', *map(str, t.dims)])}]"
        for t in serving_spec.inputs
    )
    said.append(f"inputs: {named}; output: scores float32 [batch, 1]")
    stored = f" with tables in {STORED_AS[flags.quantize_tables]}" if serving_spec.tables else ""
    said.append(f"written: {output}, {size_bytes:,} bytes{stored}")
    return "\n".join(said)


def _write_onnx(dense, serving_spec, trained, folder: Path, quantize: str) -> str:
    """Writes the ONNX model; returns what was checked."""
    from deployment.artifacts.onnx_model import (
        check_against_tensorflow,
        dense_to_onnx,
        monolithic_onnx,
    )
    from deployment.artifacts.saved_models import write_dense

    with tempfile.TemporaryDirectory() as scratch:
        saved_model, file = Path(scratch) / "dense", Path(scratch) / "dense.onnx"
        write_dense(dense, saved_model)
        dense_to_onnx(saved_model, file)
        agreement = check_against_tensorflow(dense, serving_spec, trained, file)
        monolithic_onnx(file, serving_spec, trained, folder / ONNX_FILE, quantize)
    return f"behind the tables, in ONNX: {agreement}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.export",
        description="Writes one model of a checkpoint, from the tensors of a request to scores.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--checkpoint_dir",
        required=True,
        metavar="DIR",
        help="a checkpoint, or a folder of them, whose best is taken, else the newest",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--format", required=True, choices=(SAVED_MODEL, ONNX))
    parser.add_argument(
        "--dataset_path",
        metavar="DIR",
        help="folder of the data set (default: where the training found it)",
    )
    parser.add_argument(
        "--quantize_tables",
        default=NONE,
        choices=QUANTIZATIONS,
        help="how rows of tables are stored; int8 with a scale for each row (default %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
