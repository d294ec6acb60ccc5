"""Log lines at the start of a run: what runs, and notes on it."""

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from config.sections import original
from dataloading.spec import data_checks
from runtime.readable import readable
from training.state import RunContext


def start_block(run: RunContext) -> str:
    """Returns what runs, on what, by which settings, and where its log is, in a few lines."""
    config, device = run.config, run.device
    facts = {**run.recipe.facts, "seed": str(config.run.seed)}
    data = {name: facts.pop(name) for name in list(facts) if name.endswith("_rows")}
    facts |= {"ranks": run.world.size} if run.world.size > 1 else {}
    texts = {
        "data": f"{config.data.dataset_path or 'generated'}  {_listed(data)}",
        "model": f"{config.recipe}, {config.run.mode} on {device.kind} in {device.compute_dtype}  "
        + _listed(facts),
        "preset": config.preset_note.removeprefix("preset "),
        "log": str(run.log.path),
    }
    lines = (
        textwrap.wrap(f"{name:7} {text}", 118, subsequent_indent=" " * 8, break_on_hyphens=False)
        for name, text in texts.items()
        if text
    )
    return "\n".join(itertools.chain(*lines))


def _listed(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {readable(value)}" for name, value in values.items())


def start_notes(
    run: RunContext,
    binding_note: str | None,
    pretrained: str | None,
    restore_notes: Sequence[str],
) -> Iterator[str]:
    """Yields log lines on fallbacks, flags without effect and choices to know of."""
    config, device = run.config, run.device
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
