"""Output folders that a preparation may create or replace."""

from pathlib import Path

from dataloading.spec.output_folder import check_replaceable


def check_output(output: Path, source: Path, overwrite: bool) -> None:
    """Raises ValueError if the output folder exists and may not, or should not, be replaced.

    Args:
        output: new, or with `overwrite` a prepared data set and nothing else.
        source: what is read; it must not lie in `output`.
    """
    if output.resolve() == source.resolve() or output.resolve() in source.resolve().parents:
        raise ValueError(
            f"--output {output} holds {source}, which is read and would be replaced; choose another"
        )
    if not output.exists():
        return
    if not overwrite:
        raise ValueError(f"--output {output} exists; replace it with --overwrite, or move it away")
    try:
        check_replaceable(output, overwrite)
    except ValueError as error:
        raise ValueError(f"--overwrite: --output {error}") from None
