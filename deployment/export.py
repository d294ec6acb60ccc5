"""Exports a checkpoint of any recipe as one SavedModel with its tables.

python -m deployment.export --checkpoint_dir runs/model --output runs/served

The result needs TensorFlow alone. `assets.extra/` in it has the feature spec and the encoder, with
which `preproc.encoding.encoder` encodes raw rows.
"""

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.command import CommandOptions, parse
from config.family import Definition
from config.flag import flag, recipe_flag
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from deployment.artifacts.table_files import NONE, QUANTIZATIONS, STORED_AS
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted
from runtime.files.outputs import SAVED_MODEL, check_folder
from runtime.files.staging import output_folder

if TYPE_CHECKING:
    from deployment.model.trained_model import TrainedModel

_TOOL = "deployment.export"


@dataclass(frozen=True)
class ExportOptions(CommandOptions):
    """Writes one model of a checkpoint, from the tensors of a request to scores."""

    checkpoint_dir: str = flag(
        MISSING, "a checkpoint, or a folder of them: the best one, else the newest", metavar="PATH"
    )
    output: str = flag(MISSING, "new folder", metavar="DIR")
    format: str = flag("savedmodel", "the only one, the default", choices=("savedmodel",))
    dataset_path: str | None = flag(
        None, "data set of the training (default: its path in the training)", metavar="DIR"
    )
    recipe: str | None = recipe_flag()
    quantize_tables: str = flag(
        NONE, "storage of table rows; int8 with a scale per row", choices=QUANTIZATIONS
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status, see `exit_status`."""
    with interrupted_by_sigterm():
        return exit_status(
            lambda: print(export(parse(ExportOptions, argv, _TOOL))),
            "interrupted; nothing was written under --output",
        )


def export(flags: ExportOptions) -> str:
    """Writes the model; returns the text that the command prints."""
    output = Path(flags.output)
    check_folder(output, SAVED_MODEL)  # before gigabytes are read
    from deployment.model.served_model import interface_of
    from deployment.model.trained_model import open_checkpoint

    trained = open_checkpoint(flags.checkpoint_dir, flags.dataset_path, flags.recipe)
    interface = interface_of(trained)
    size_bytes = _write(trained, output, flags.quantize_tables)
    named = ", ".join(
        f"{t.name} {t.dtype} [{', '.join(['batch', *map(str, t.dims)])}]" for t in interface.inputs
    )
    stored = f" with tables in {STORED_AS[flags.quantize_tables]}" if interface.tables else ""
    return (
        f"{trained.recipe} of {trained.path}\n"
        f"inputs: {named}; output: scores float32 [batch, 1]\n"
        f"written: {output}, {size_bytes:,} bytes{stored}"
    )


def write_saved_model(
    checkpoint: str,
    output: str,
    dataset_path: str | None,
    recipe: str | Definition,
    half_precision: bool,
) -> None:
    """Writes a checkpoint as a SavedModel, which replaces an earlier one at `output`.

    Args:
        checkpoint, dataset_path, recipe: as of `open_checkpoint`.
        output: the folder of the SavedModel.
        half_precision: compute the dense part in float16.

    Raises:
        ValueError: the checkpoint cannot be read, or `output` has content that this toolkit did not
            write.
    """
    from deployment.model.trained_model import open_checkpoint

    trained = open_checkpoint(checkpoint, dataset_path, recipe)
    precision = "fp16" if half_precision else "fp32"
    _write(trained, Path(output), precision=precision, overwrite=True)


def _write(
    trained: "TrainedModel",
    output: Path,
    quantize: str = NONE,
    precision: str = "fp32",
    overwrite: bool | None = None,
) -> int:
    """Writes a SavedModel with the feature spec and the encoder of the data set, which TensorFlow
    does not read; returns the bytes of its files."""
    from deployment.artifacts import saved_models
    from deployment.model.served_model import POLICIES, DenseModel, interface_of

    dense = DenseModel(trained, POLICIES[precision])
    with output_folder(output, _TOOL, SAVED_MODEL, overwrite) as folder:
        interface = interface_of(trained)
        saved_models.write_monolithic(dense, interface, trained, folder, quantize=quantize)
        assets = folder / "assets.extra"
        assets.mkdir()
        trained.spec.to_yaml(assets / SPEC_FILE)
        if trained.encoder is not None:
            trained.encoder.save(assets / ENCODER_FOLDER)
        size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        raise_if_interrupted()
    return size_bytes


if __name__ == "__main__":
    sys.exit(main())
