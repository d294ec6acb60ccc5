"""MkDocs hook: README.md is the start page, and benchmarks/ is part of the site as results/."""

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
# Start of a link in the repository -> in the site, by the page's folder in the site.
LINKS = {
    "index.md": {"docs/": "", "benchmarks/README.md": "results/index.md", "benchmarks/": ""},
    "results/index.md": {"results/": "", "../docs/": "../"},
    "results": {"../../docs/": "../", "../README.md": "index.md"},
    "": {"../../benchmarks/README.md": "../results/index.md", "../../benchmarks/": "../"},
}


def on_files(files, config):
    """Adds the README, the overview of the benchmarks and their dated results."""
    pages = {"index.md": "README.md", "results/index.md": "benchmarks/README.md"}
    results = sorted((ROOT / "benchmarks/results").glob("*.md"))
    pages |= {f"results/{page.name}": f"benchmarks/results/{page.name}" for page in results}
    for uri, path in pages.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Replaces links that are relative to the repository by links within the site."""
    uri = page.file.src_uri
    folder = "results" if uri.startswith("results/") else ""
    for repository, site in LINKS.get(uri, LINKS[folder]).items():
        for opening in ("](", "]: "):
            markdown = markdown.replace(f"{opening}{repository}", f"{opening}{site}")
    return markdown
