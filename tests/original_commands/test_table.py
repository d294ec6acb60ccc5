"""docs/original_commands.tsv has what the documents have, and names tests that exist."""

import pytest

from docs import original_commands
from tests.original_commands import extraction
from tests.original_commands.commands import ROOT

COMMANDS = original_commands.read_commands()


@pytest.mark.parametrize("document", original_commands.DOCUMENTS)
def test_commands_of_a_document(document):
    path = extraction.document_path(document)
    if path is None:
        pytest.skip(f"the documents are not there: {extraction.FOLDER}")
    rows = [(row.number, row.text) for row in COMMANDS if row.document == document]
    assert rows == [*enumerate(extraction.extract(path.read_text()), 1)]


def test_extraction():
    """A document with fences, and one in which they are lost."""
    fenced = (
        "Run:\n```bash\n# build\n$ ./build.sh \\\n  --all\n\ncd build\n```\n```\na: 1\nb: 2\n```\n"
    )
    assert extraction.extract(fenced) == ["./build.sh --all", "cd build", "a: 1 (block of 2 lines)"]
    plain = "Train\n   python train.py \\\n     --epochs 3\nfeature_spec:\n  user:\n    x: 1\nEnd\n"
    assert extraction.extract(plain) == [
        *("python train.py --epochs 3", "feature_spec: (block of 3 lines)")
    ]
    several = "# test cd /work python a_test.py $ horovodrun -np 4 python main.py --x 1 [1,0] done"
    assert extraction.extract(several) == [
        *("cd /work", "python a_test.py", "horovodrun -np 4 python main.py --x 1")
    ]
    sentences = "Add the `--max_steps 1000` flag, and see `python ncf.py --help` for more"
    assert extraction.extract(sentences.replace("Add", "add")) == [
        *("python ncf.py --help", "--max_steps 1000")
    ]


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: f"{row.document}-{row.number}")
def test_row(row):
    assert row.treatment in original_commands.TREATMENTS
    assert bool(row.replacement) == (row.treatment == "replaced")
    assert row.reason or row.treatment in ("run", "open")
    assert bool(row.test) == (row.treatment in ("run", "replaced"))
    if row.test:
        path, _, name = row.test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()


def test_kinds_of_replacements():
    kinds = {replacement.kind for replacement in original_commands.read_replacements()}
    assert kinds <= {"path", "size", "processes", "program"}
