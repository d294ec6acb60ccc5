"""Table of docs/explanation/which_model.md, from a results page of `default_settings`.

python -m benchmarks.which_model RESULTS
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/explanation/which_model.md"


def block(results: Path) -> str:
    """Returns the part of the page that follows from a results page."""
    section = r"^## (?:Test AUC|Verdict)\n\n((?:[|-].*\n)+)"
    tables, verdicts = re.findall(section, results.read_text(), re.MULTILINE)
    return f"<!-- results: {results.name} -->\n{tables}\n{verdicts}<!-- end of results -->"


def rewrite(results: Path, page: Path = PAGE) -> None:
    """Replaces the part of the page that follows from a results page."""
    part = r"<!-- results: \S+ -->\n.*?<!-- end of results -->"
    text, _ = re.subn(part, lambda _: block(results), page.read_text(), flags=re.DOTALL)
    page.write_text(text)


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
