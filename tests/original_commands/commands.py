"""Runs commands of the documents, with the replacements of docs/original_replacements.tsv."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from docs import original_commands
from tests.original_commands import extraction

ROOT = Path(__file__).resolve().parents[2]
QUOTED_ROOT = shlex.quote(str(ROOT))  # its path may hold spaces
# Programs that a machine may lack, and what runs in their place there.
STAND_INS = {
    "mpiexec": """#!/usr/bin/env bash
        while [ "$1" != -np ]; do shift; done
        exec horovodrun "$@"
    """,
    "numactl": """#!/usr/bin/env bash
        while [ "$1" != -- ]; do shift; done
        shift
        exec "$@"
    """,
}
# Of DLRM and DCNv2 on `clicks`.
CTR_SIZES = (
    "--preset terabyte --batch_size 256 --valid_batch_size 256 --embedding_dim 16 "
    "--bottom_mlp_dims 32,16 --top_mlp_dims 32,1"
)


class Commands:
    """Commands of one document, for one test.

    Args:
        document: its number.
        rows: the commands that the table assigns to the test.
        programs: folder with `python` and what else precedes the PATH.
        variables: text of each name in braces.
    """

    def __init__(self, document, rows, programs, variables):
        self.rows = {row.number: row for row in rows}
        self.used = set()
        self.variables = variables
        self._programs = programs
        self._replacements = [
            replacement
            for replacement in original_commands.read_replacements()
            if replacement.document == document and replacement.kind != "program"
        ]
        self._document = document

    def text(self, number):
        """Returns a command with all replacements."""
        row = self.rows[number]
        assert row.treatment != "not here"
        self.used.add(number)
        parts = [(row.replacement or row.text, False)]  # text, whether it is replaced
        for replacement in self._replacements:
            parts = [part for old in parts for part in self._split(*old, replacement)]
        if row.replacement:  # names in braces are those of the table
            return self._filled("".join(text for text, _ in parts))
        return "".join(self._filled(text) if is_new else text for text, is_new in parts)

    def _split(self, text, is_new, replacement):
        if is_new:
            return [(text, True)]
        pieces = [(piece, False) for piece in text.split(replacement.printed)]
        joined = [(replacement.here, True)] * (2 * len(pieces) - 1)
        joined[::2] = pieces
        return joined

    def _filled(self, text):
        for name, value in self.variables.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def block(self, number):
        """Returns a block of the document; skips the test where the documents are absent."""
        path = extraction.document_path(self._document)
        if path is None:
            self.used = set(self.rows)  # the test ends here
            pytest.skip(f"the documents are not there: {extraction.FOLDER}")
        self.used.add(number)
        return extraction.entries(path.read_text())[number - 1]

    def run(self, *numbers, cwd=ROOT, code=0, append="", **environment):
        """Runs commands one after the other in one shell; returns their output.

        Args:
            append: flags at the end of the last command.
        """
        script = "\n".join(self.text(number) for number in numbers) + f" {append}"
        return self.shell(script, cwd, code, **environment)

    def shell(self, script, cwd=ROOT, code=0, **environment):
        """Runs a script of bash; returns its output."""
        search = f"{self._programs}:{ROOT}/.venv/bin:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=cwd,
            env={**os.environ, "PATH": search, "PYTHON": "python", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, f"{script}\n{done.stdout}"
        return done.stdout


def read_log(file):
    """Returns the entries (step, data) of a log; steps are lists of numbers."""
    entries = [json.loads(line.removeprefix("DLLL ")) for line in file.read_text().splitlines()]
    for entry in entries:
        assert {"timestamp", "datetime", "elapsedtime", "type"} <= entry.keys()
    return [
        (entry["step"], entry["data"])
        for entry in entries
        if entry["type"] == "LOG" and isinstance(entry["step"], list)
    ]


def clone(commands, folder, *numbers, **options):
    """Runs `git clone` and what follows it, then --help of a recipe of the clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    commands.variables["root"] = QUOTED_ROOT
    commands.run(*numbers, cwd=folder, append="&& test -f main.py", **options)
