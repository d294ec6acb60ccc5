"""Inspects, verifies and exports checkpoints; only --format nvidia needs TensorFlow.

    python -m runtime.checkpoint inspect PATH             content
    python -m runtime.checkpoint verify PATH              checksums of all bytes
    python -m runtime.checkpoint export PATH --output DIR [--weights sparse/]
                                                          whole arrays as .npy
    python -m runtime.checkpoint export PATH --output model.pth --format torch
                                                          NeuMF as PyTorch's state_dict
    python -m runtime.checkpoint export PATH --output DIR --format nvidia
                                                          DLRM and DCNv2 for NVIDIA's recipe

PATH is a checkpoint, or a folder of checkpoints, whose newest one is used.
"""

import json
import sys
from dataclasses import MISSING, dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import flag, value_text
from runtime.checkpoint import files, reader
from runtime.checkpoint.folder import Folder, resolve, suggest_previous
from runtime.checkpoint.nvidia import folders
from runtime.checkpoint.nvidia.neumf import FILE
from runtime.checkpoint.weight import matrix_of
from runtime.files.staging import output_folder


@dataclass(frozen=True)
class _CheckpointOptions(CommandOptions):
    path: str = flag(
        MISSING, "a checkpoint, or a folder of them", is_positional=True, metavar="PATH"
    )


@dataclass(frozen=True)
class InspectOptions(_CheckpointOptions):
    """Prints the content."""

    json: bool = flag(False, "everything, as JSON")


@dataclass(frozen=True)
class VerifyOptions(_CheckpointOptions):
    """Checks every byte."""


@dataclass(frozen=True)
class CheckpointExportOptions(_CheckpointOptions):
    """Writes whole arrays as .npy."""

    output: str = flag(MISSING, "new folder to write; of --format torch the file", metavar="PATH")
    format: str = flag(
        "npy",
        "npy: whole arrays; torch: the state_dict of NVIDIA's NCF recipe, only of a NeuMF; "
        "nvidia: a checkpoint of its DLRM or DCNv2 (needs TensorFlow)",
        choices=("npy", "torch", "nvidia"),
    )
    weights: str = flag("", "only weights with this prefix: sparse/ for the tables")


_COMMANDS: dict[str, type[_CheckpointOptions]] = {
    "inspect": InspectOptions,
    "verify": VerifyOptions,
    "export": CheckpointExportOptions,
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0 success, 1 damaged, 2 a wrong argument."""
    try:
        options: _CheckpointOptions = parse(_COMMANDS, argv, "runtime.checkpoint", __doc__)
        path = resolve(options.path, "PATH")
        if folders.is_original(path):
            raise ValueError(
                f"{path} has the layout of NVIDIA's recipe: its tables are .npy files, without "
                "checksums"
            )
        if path.is_file():
            raise ValueError(f"{path} is a file of PyTorch, which torch.load reads")
        if isinstance(options, InspectOptions):
            inspect(path, options.json)
        elif isinstance(options, VerifyOptions):
            return verify(path)
        else:
            assert isinstance(options, CheckpointExportOptions)
            with suggest_previous(path, "PATH"):
                _export(path, Path(options.output), options)
    except files.DamagedCheckpoint as error:
        print(f"damaged: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def inspect(path: Path, as_json: bool) -> None:
    """Prints the description of a checkpoint."""
    index = files.read_index(path)
    weights = {name: entry.as_json() for name, entry in index.weights.items()}
    if as_json:
        content = {"path": str(path), **index._asdict(), "weights": weights}
        print(json.dumps(content, indent=1))
        return
    description = index.description
    print(f"{path}: {description.get('recipe', 'a model')}, {index.size_bytes / 2**20:,.1f} MiB")
    state = index.state
    if state:
        print(f"step {state['step']}, epoch {state['epoch']}, row {state['row']} of it")
    for name, value in {**state.get("metrics", {}), **state.get("best", {})}.items():
        print(f"{name} {value}")
    for name, value in description.get("versions", {}).items():
        print(f"{name} {value}")
    flags = {k: v for k, v in description.get("flags", {}).items() if v is not None}
    if flags.get("dataset_type") != "synthetic":
        flags = {k: v for k, v in flags.items() if not k.startswith("synthetic_")}
    print("flags: " + " ".join(f"--{k}={value_text(v)}" for k, v in flags.items()))
    for name, entry in index.weights.items():
        shape = " x ".join(map(str, entry.shape)) or "scalar"
        print(f"{name}  {entry.dtype.name}  {shape}  in {len(entry.pieces)} pieces")
    if index.files:
        print(f"files of the data set: {', '.join(index.files)}")
    others = [s.path.name for s in Folder(path.parent).list() if s.path.name != path.name]
    if others:
        print(f"other checkpoints: {', '.join(others)}")


def verify(path: Path) -> int:
    """Reads every byte and prints damaged files."""
    faults = [fault for _, fault in reader.verify(path)]
    damages = list(filter(None, faults))
    if not damages:
        print(f"{path} is complete: {len(faults)} files, all checksums match")
        return 0
    previous = Folder(path.parent).previous(path)
    suggestion = f"; the one before it is {previous}" if previous else ""
    print(*damages, sep="\n")
    print(f"{path} is damaged: {len(damages)} of {len(faults)} files{suggestion}")
    return 1


def _export(path: Path, output: Path, options: CheckpointExportOptions) -> None:
    if options.format == "torch":
        names = reader.export_neumf(path, output / FILE if output.is_dir() else output)
    else:
        with output_folder(output, "runtime.checkpoint", "exported checkpoint") as folder:
            if options.format == "npy":
                names = export(path, folder, options.weights)
            else:
                names = reader.export_nvidia(path, folder)
    print(f"{output}  {', '.join(names)}")


def export(path: Path, folder: Path, prefix: str) -> list[str]:
    """Writes whole arrays, joined from all their pieces, and without a prefix the files of the data
    set; returns the names of the files."""
    index = files.read_index(path)
    chosen = {name: e for name, e in index.weights.items() if name.startswith(prefix)}
    if not chosen:
        raise ValueError(
            f"no weight of {path} begins with {prefix!r}: there are {', '.join(index.weights)}"
        )
    names = [files.file_of(name, e.shape, matrix_of(e.shape)) for name, e in chosen.items()]
    for name, entry in zip(names, chosen.values(), strict=True):
        files.write_npy(folder / name, entry, reader.rows_of(path, entry))
    if not prefix:
        names += files.copy_attached(path, index, folder)
    return names


if __name__ == "__main__":
    sys.exit(main())
