"""The flag `--delimiter` of the tools that read CSV: how it is written, and what it may be."""

_NAMED = {"tab": "\t", "\\t": "\t"}


def read_delimiter(text: str) -> str:
    """ "tab" -> a tab; any other text -> itself."""
    return _NAMED.get(text, text)


def check_delimiter(delimiter: str) -> None:
    """Refuses what cannot stand between fields.

    Raises:
        ValueError: it is not one ASCII character, or it is a quote or a line end.
    """
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ValueError(
            "--delimiter must be one ASCII character other than a quote or line end, or 'tab'; "
            f"found {delimiter!r}"
        )
