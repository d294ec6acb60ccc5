"""Flags of NVIDIA's DLRM and DCNv2 recipes that this toolkit has no other use for."""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from config.flag import OWN, Rules, Values

# Values of --dot_interaction and those of --interaction that they stand for.
DOT_INTERACTIONS = {"custom_cuda": "dot", "tensorflow": "dot_tensorflow", "dummy": "dot"}

_ranking = functools.partial(Rules, part="ranking")


@dataclass(frozen=True)
class OriginalConfig:
    """Flags of NVIDIA's DLRM and DCNv2."""

    use_mde_embeddings: bool = _ranking().flag(
        True,
        "store the tables with distributed-embeddings; always so: without the flag the log has a "
        "note",
    )
    concat_embedding: bool = _ranking().flag(
        False, "look up tables of equal width together; always so, the log has a note"
    )
    data_parallel_input: bool | None = _ranking().flag(
        None, "each rank reads all ids of its samples; the opposite of --model_parallel_input"
    )
    dot_interaction: str | None = _ranking(choices=tuple(DOT_INTERACTIONS)).flag(
        None,
        "--interaction of DLRM; custom_cuda and dummy are dot, tensorflow is dot_tensorflow",
    )
    dummy_model: bool = _ranking().flag(
        False,
        "train two dense layers of one unit in place of the model; they read the numerical "
        "features only: the speed is that of the input pipeline",
    )
    saved_model_output_path: str | None = _ranking(resume=OWN, modes=("train", "deploy")).flag(
        None,
        "folder of a TensorFlow SavedModel to write; of the checkpoint (--mode deploy), or of the "
        "training's last one, with --keep_best its best one",
    )
    saved_model_input_path: str | None = _ranking(
        resume=OWN, modes=("eval", "importance", "predict", "inference")
    ).flag(None, "SavedModel to run in place of a checkpoint; written by --saved_model_output_path")
    save_input_signature: bool = _ranking(resume=OWN, modes=("train", "deploy")).flag(
        False, "store the signature of a SavedModel; always so"
    )
    fp16: bool = _ranking().flag(
        False, "write the SavedModel with a dense part in float16; runs in the other modes as --amp"
    )


def is_requested(flags: Values) -> bool:
    """Returns whether flags of NVIDIA's recipes that others do not need have values of their own.

    A file with all flags of a run passes the others, too.
    """
    names = ("log_path", *(field.name for field in dataclasses.fields(OriginalConfig)))
    return any(flags.has(n) and flags.value(n) != flags.default(n) for n in names)


def notes(flags: Values) -> Iterator[str]:
    """Yields a note on each flag that is set and has no effect."""
    if not flags.value("use_mde_embeddings"):
        yield (
            "--nouse_mde_embeddings has no effect: the package distributed-embeddings stores all "
            "tables"
        )
    if flags.value("dot_interaction") == "dummy":
        yield "--dot_interaction dummy has no effect: the dot products are computed"
    if flags.value("concat_embedding"):
        yield "--concat_embedding has no effect: tables of one width are always looked up together"


def check_dummy_model(flags: Values) -> None:
    """Raises ValueError for a SavedModel of `--dummy_model`."""
    if flags.value("dummy_model") and flags.value("saved_model_output_path"):
        raise ValueError(
            "--dummy_model reads no ids and cannot be written as a SavedModel: leave "
            "--saved_model_output_path out"
        )


def _check_saved_model(flags: Values) -> None:
    mode, source = flags.value("mode"), flags.value("saved_model_input_path")
    if source and mode == "train":
        raise ValueError(
            "--saved_model_input_path: a SavedModel cannot be trained; train a checkpoint with "
            "--restore_checkpoint_path"
        )
    if source and flags.value("restore_checkpoint_path"):
        raise ValueError(
            "--saved_model_input_path and --restore_checkpoint_path both name a model: pass only "
            "one of them"
        )
    if mode != "deploy":
        return
    if not flags.has("saved_model_output_path"):
        raise ValueError(
            f"--mode deploy is not of {flags.recipe}.py: write this model with python -m "
            "deployment.export"
        )
    for name in ("restore_checkpoint_path", "saved_model_output_path"):
        if not flags.value(name):
            raise ValueError(
                f"--mode deploy writes the checkpoint --restore_checkpoint_path to "
                f"--saved_model_output_path: --{name} is missing"
            )


RULES = (_check_saved_model,)
