"""Log lines at the start of a run: what runs, and notes on it."""

from collections.abc import Iterator, Sequence

from config.sections import original
from dataloading.spec import data_checks
from training.state import RunContext


def start_notes(
    run: RunContext,
    binding_note: str | None,
    pretrained: str | None,
    restore_notes: Sequence[str],
) -> Iterator[str]:
    """Yields log lines on what runs, and on what."""
    config, device = run.config, run.device
    if config.preset_note:
        yield config.preset_note
    ranks = {"ranks": run.world.size} if run.world.size > 1 else {}
    facts = "  ".join(f"{name} {value}" for name, value in {**run.recipe.facts, **ranks}.items())
    yield f"{config.run.mode} on {device.kind} in {device.compute_dtype}  {facts}"
    load = config.checkpoint.load_checkpoint_path
    if load and config.run.mode == "train" and run.start.path is None:
        yield f"note: --load_checkpoint_path {load} has no checkpoint: a new training starts"
    if unused := config.unused():
        flags = ", ".join(f"--{name}" for name in unused)
        yield f"note: not used in this run (--mode {config.run.mode}): {flags}"
    if "loss_scale" in config.explicit and device.compute_dtype == "bfloat16":
        yield "note: --loss_scale is not used, bfloat16 has the range of float32"
    from distributed_embeddings.ops import kernels

    reason = kernels.reason_for_fallback()
    lookup_note = reason and f"TensorFlow's own operations look embeddings up, for {reason}"
    warnings = None
    if config.run.mode == "train" and run.data is not None and run.world.is_chief:
        warnings = data_checks.describe_warnings(run.data.base_directory)
    notes = (binding_note, lookup_note, run.start.note, *original.notes(config), warnings)
    for note in filter(None, (*notes, *restore_notes, *run.recipe.notes)):
        yield f"note: {note}"
    if pretrained:
        yield f"start from other models: {pretrained}"
