"""Every command in README and docs, run on tiny data in a copy of the repository.

Parts of pages that share no files run in parallel, each in a copy of its own. Pages can also
be followed one after the other in one clone: no two parts write the same file or folder. `python`
is that of tests/forked_python.py.

`make test` runs the pages that a new user reads first and checks the flags of the commands on all
others, which --long runs.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from docs import flag_reference
from tests.forked_python import install_shim

ROOT = Path(__file__).resolve().parent.parent
SITE_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*SITE_PAGES, ROOT / "distributed-embeddings/README.md"]
FIRST_PAGES = [ROOT / "README.md", ROOT / "docs/tutorials/getting_started.md"]
RESULTS = [ROOT / "benchmarks/README.md", *sorted((ROOT / "benchmarks/results").glob("*.md"))]
NAVIGATION = re.compile(r"^ +- ([\w/]+\.md)$", re.MULTILINE)
# Lines of programs' output, in text blocks, may be longer.
MAX_COLUMNS, MAX_CODE_COLUMNS, MAX_LINES = 120, 90, 250
# What runs before, or runs, these tests.
NOT_HERE = re.compile(r"make (setup|test|test-all)|pip install .+|\.venv/bin/python -m pytest .+")
# Made by `make serve-setup`; without it what needs a server is left out.
SERVING, ENGINES = ROOT / ".venv-serve", ROOT / ".venv-engines"
# Containers run tests as root, on any number of cores; Open MPI needs these settings.
MPI_HERE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def blocks(page: Path) -> list[str]:
    """Returns the ```bash blocks of a page."""
    return re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def shown(page: Path) -> dict[str, str]:
    """Returns the output of ```bash blocks on a page: the ```text blocks right after them."""
    behind = r"^```bash\n(.*?)^```\n\n```text\n(.*?)^```"
    return dict(re.findall(behind, page.read_text(), re.MULTILINE | re.DOTALL))


@functools.cache
def launchers_here() -> set[str]:
    """Returns those of horovodrun and mpirun that can start several processes here."""
    if not (Path(sys.executable).parent / "horovodrun").exists():
        return set()
    program = "import sys, horovod.tensorflow as hvd; sys.exit(not hvd.mpi_built())"
    with_mpi = (
        shutil.which("mpirun")
        and not subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False
        ).returncode
    )
    return {"horovodrun", "mpirun"} if with_mpi else {"horovodrun"}


def runs_here(script: str) -> bool:
    if all(NOT_HERE.fullmatch(line) for line in commands(script) if line):
        return False
    if "deployment.serve " in script and not (SERVING / "installed").exists():
        return False
    if "curl " in script and shutil.which("curl") is None:
        return False
    wanted = set(re.findall(r"\b(horovodrun|mpirun) ", script))
    return not wanted or wanted <= launchers_here()


def commands(script: str) -> list[str]:
    return [line.split("  #")[0].strip() for line in script.splitlines()]


def copy_of_the_repository(target: Path) -> Path:
    """Copies the files that git tracks or would track, with this environment under .venv."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").mkdir()
    for part in (ROOT / ".venv").iterdir():
        (target / ".venv" / part.name).symlink_to(part)
    if SERVING.exists():
        (target / SERVING.name).symlink_to(SERVING)
    (target / ".venv-engines").mkdir()
    if ENGINES.exists():
        for part in ENGINES.iterdir():
            (target / ".venv-engines" / part.name).symlink_to(part)
    # newer than the copies that they depend on
    for stamp in (".venv/run", ".venv/installed", ".venv/op", ".venv-engines/installed"):
        (target / stamp).unlink(missing_ok=True)
        (target / stamp).touch()
    return target


class Part(NamedTuple):
    """Blocks of a page that read each other's files, in their order."""

    page: Path
    blocks: list[str]

    @property
    def num_commands(self) -> int:
        """Roughly how long it takes: `make` trains, ranks import TensorFlow."""
        text = "\n".join(self.blocks)
        costs = {r"^python ": 1, r"^(horovodrun|mpirun) ": 3, r"^make ": 5}
        return sum(
            cost * len(re.findall(start, text, re.MULTILINE)) for start, cost in costs.items()
        )


def parts_of(page: Path) -> list[Part]:
    """Blocks that name a common file or folder of data or runs are in one part."""
    parts: list[tuple[set[str], list[str]]] = []
    for block in blocks(page):
        paths, joined = set(re.findall(r"\b(?:data|runs)/\w+", block)), [block]
        others = []
        for part in parts:
            if part[0] & paths:
                paths, joined = paths | part[0], part[1] + joined
            else:
                others.append(part)
        parts = [*others, (paths, joined)]
    order = blocks(page)
    return [Part(page, sorted(joined, key=order.index)) for _, joined in parts]


PARTS = sorted(
    (part for page in PAGES for part in parts_of(page)),
    key=lambda part: part.num_commands,
    reverse=True,
)


def runs_in_make_test(part: Part) -> bool:
    """Returns whether a part is a first page's, without the demo, which `make test-newest` runs."""
    return part.page in FIRST_PAGES and not any("make demo" in block for block in part.blocks)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=() if runs_in_make_test(part) else pytest.mark.long)
        for part in PARTS
    ],
    ids=lambda part: part.page.name,
)
def test_commands_of_a_page(part, request, tmp_path, forked_python, outputs_of_parts):
    """The blocks of a page run one after the other, as a reader would run them.

    `make test` ends trainings on several ranks early: they wait for each other next to other tests.
    """
    if not any(runs_here(block) for block in part.blocks):
        pytest.skip("nothing of it can be run here")
    home = copy_of_the_repository(tmp_path / "a clone")
    save_programs(part.page, home)
    if part.blocks[0] != blocks(part.page)[0]:
        (home / "data").mkdir(exist_ok=True)  # by the blocks before
    before = outputs(home)
    install_shim(home.with_name("shims"), forked_python)
    page_blocks = part.blocks
    if not request.config.getoption("--long"):
        ranks = re.compile(r"^(horovodrun .*dlrm\.py .*--cpu)$", re.MULTILINE)
        page_blocks = [ranks.sub(r"\1 --max_steps=20", block) for block in page_blocks]
    run_blocks(part.page, page_blocks, home)
    created = outputs(home) - before
    (outputs_of_parts / f"{PARTS.index(part)}.json").write_text(json.dumps(sorted(created)))
    assert all(path.startswith(("data/", "runs/")) for path in created), created
    for number, other in enumerate(PARTS):
        file = outputs_of_parts / f"{number}.json"
        shared = created & set(json.loads(file.read_text())) if file.exists() else set()
        assert other is part or not shared, (
            f"{part.page.name} and {other.page.name} both write {shared}: use different names"
        )


def save_programs(page: Path, home: Path) -> None:
    """Saves the programs of a page under the names that it gives; each has at most 80 lines."""
    programs = r"^Save this as `(\w+\.py)`.*?^```python\n(.*?)^```"
    for name, program in re.findall(programs, page.read_text(), re.MULTILINE | re.DOTALL):
        assert program.count("\n") <= 80
        (home / name).write_text(program)


@pytest.fixture(scope="module")
def outputs_of_parts(tmp_path_factory) -> Path:
    """A folder, shared by all pytest workers, with the names that each part wrote."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "outputs_of_parts"
    folder.mkdir(exist_ok=True)
    return folder


def outputs(home: Path) -> set[str]:
    """Files and folders at the top of a clone and in data and runs, without numbered runs."""
    parents = (home, home / "data", home / "runs")
    paths = {path for parent in parents if parent.is_dir() for path in parent.iterdir()}
    names = {str(path.relative_to(home)) for path in paths - set(parents)}
    unique = re.compile(r"runs/(dlrm|dcnv2|sim|ncf)-.+-\d+|\.(pytest|ruff)_cache|.*__pycache__")
    return {name for name in names if not unique.fullmatch(name)}


def run_blocks(page: Path, blocks: list[str], home: Path) -> None:
    """Runs blocks of a page in a clone, with the `python` in the folder `shims` next to it."""
    shims = home.with_name("shims")
    for script in filter(runs_here, blocks):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=home,
            env={
                **os.environ,
                **MPI_HERE,
                "PATH": f"{shims}:{home}/.venv/bin:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        report = f"{page.name}:\n{script}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, report
        if "--plan_only" in script:  # the same everywhere
            for line in shown(page).get(script, "").splitlines():
                assert line.removesuffix("...").rstrip() in report, f"not printed: {line}\n{report}"
        if script == "make demo\n":
            demo_reaches_the_best_auc(home)


def demo_reaches_the_best_auc(home: Path) -> None:
    """`make demo` was one of the commands: its model is within 0.01 of the best there can be."""
    for run in ("demo", "demo-test"):
        *_, last = (home / "runs" / run / "log.json").read_text().splitlines()
        summary = json.loads(last.removeprefix("DLLL "))["data"]
        assert 0 <= summary["best_reachable_auc"] - summary["auc"] < 0.01, run


def flags_by_program() -> dict[str, set[str]]:
    """Returns the flags that pages beyond FIRST_PAGES pass to programs of this repository."""
    flags: dict[str, set[str]] = {}
    for page in PAGES:
        lines = "\n".join(() if page in FIRST_PAGES else blocks(page)).replace("\\\n", " ")
        for command in re.findall(r"\bpython (.*)", lines):
            words = command.split()
            names = {word.split("=")[0] for word in words if re.match(r"--\w", word)}
            program = re.match(r"-m [\w.]+( [a-z]+)?(?= )|\S+", command)[0]  # with a subcommand
            if names and (program.startswith("-m") or (ROOT / program).is_file()):
                flags.setdefault(program, set()).update(names)
    return flags


FLAGS = flags_by_program()


@pytest.mark.parametrize(("program", "flags"), FLAGS.items(), ids=FLAGS)
def test_flags_of_commands(run_script, program, flags):
    """Commands that only --long runs have flags that exist."""
    text = run_script(*program.split(), "--help" if "-m" in program else "--helpfull").stdout
    assert flags <= set(re.findall(r"--\w+", text)), text


def test_paths_of_tests():
    """Tests that a page names are there; `make test` runs them."""
    for page in PAGES:
        for block in blocks(page):
            for path in re.findall(r"\btests/[\w/.]+", block):
                assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_languages_of_blocks():
    """A block without a language, or `sh` in place of `bash`, would not be run."""
    for page in PAGES:
        blocks_of_page = r"^```(.*?)\n(.*?)^```$"
        for language, block in re.findall(
            blocks_of_page, page.read_text(), re.MULTILINE | re.DOTALL
        ):
            assert language in {"bash", "text", "yaml", "python", ""}, page
            commands_in_it = re.search(r"^(python|make|\$|pip|horovodrun) ", block, re.MULTILINE)
            assert language or not commands_in_it, block


def pages_of_site() -> list[Path]:
    names = NAVIGATION.findall((ROOT / "mkdocs.yml").read_text())
    return [ROOT / "README.md", *(ROOT / "docs" / name for name in names)]


def test_navigation():
    assert sorted(pages_of_site()) == sorted(SITE_PAGES)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MkDocs derive them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: page.stem)
def test_links(page):
    text = page.read_text()
    links = re.findall(r"\]\(([^):]+)\)", text) + re.findall(r"^\[\w+\]: ([^:\s]+)$", text, re.M)
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_size_of_a_page(page):
    text = re.sub(r"^```text\n.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > MAX_COLUMNS] == []
    code = re.findall(r"^```(?:bash|python)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    wide = [line for block in code for line in block.splitlines() if len(line) > MAX_CODE_COLUMNS]
    assert wide == []
    limit = {ROOT / "README.md": 130}.get(page, MAX_LINES)
    is_generated = page == flag_reference.PAGE
    assert is_generated or page.read_text().count("\n") <= limit


def test_generated_flags():
    page = flag_reference.PAGE
    assert page.read_text() == flag_reference.text(), "run python -m docs.flag_reference"


def test_numbers_of_differences():
    page = (ROOT / "docs/explanation/differences.md").read_text()
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) <= 25


@pytest.mark.skipif(not (ROOT / ".venv-docs/installed").exists(), reason="run make docs")
def test_site(tmp_path):
    command = [ROOT / ".venv-docs/bin/mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Recommenders at scale" in (tmp_path / "index.html").read_text()
