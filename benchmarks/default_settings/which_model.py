"""Table of docs/explanation/which_model.md, from a results page.

python -m benchmarks.default_settings.which_model RESULTS
"""

import re
import sys
import textwrap
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/which_model.md"
_BEGIN, _END = "<!-- results: {} -->", "<!-- end of results -->"
_BLOCK = re.compile(r"<!-- results: (\S+) -->\n(.*?)<!-- end of results -->", re.DOTALL)


def block(results: Path) -> str:
    """Returns the part of the page that follows from a results page."""
    text = results.read_text()
    tables = re.search(r"^## Test AUC\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    verdicts = re.search(r"^## Verdict\n\n((?:- .*\n)+)", text, re.MULTILINE)
    if not tables or not verdicts:
        raise SystemExit(f"{results}: expected a page of benchmarks.default_settings")
    wrapped = (
        textwrap.fill(line, 118, subsequent_indent="  ", break_on_hyphens=False)
        for line in verdicts[1].splitlines()
    )
    return "\n".join([_BEGIN.format(results.name), tables[1], *wrapped, _END])


def rewrite(results: Path, page: Path = PAGE) -> None:
    """Replaces the part of the page that follows from a results page."""
    text, count = _BLOCK.subn(lambda _: block(results), page.read_text())
    if count != 1:
        raise SystemExit(f"{page}: expected one pair of comments with the results, got {count}")
    page.write_text(text)


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
