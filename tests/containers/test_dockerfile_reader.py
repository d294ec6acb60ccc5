"""The reader of Dockerfiles that the other tests use."""

import pytest

from tests.containers import dockerfile
from tests.containers.dockerignore import Ignored, context

pytestmark = pytest.mark.long

FILE = """\
# syntax=docker/dockerfile:1
ARG IMAGE=debian:12
ARG KIND=plain

FROM ${IMAGE} AS base
ARG TOOL="two words"
ENV A=1 B="x y"
# a comment
RUN --mount=type=cache,target=/c --mount=type=bind,from=b,source=/w,target=/t \\
    # within an instruction
    echo one \\
 && echo "$A"

FROM base AS kind-plain
FROM kind-${KIND}
COPY --from=base a b /c/
CMD ["python", "x.py"]
"""


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(FILE)
    return path


def test_stages_and_instructions(written):
    file = dockerfile.read(written)
    assert file.arguments == {"IMAGE": "debian:12", "KIND": "plain"}
    assert [(s.image, s.name) for s in file.stages] == [
        ("debian:12", "base"),
        ("base", "kind-plain"),
        ("kind-plain", ""),
    ]
    assert file.stage("base") is file.stages[0] and file.stage("debian:12") is None
    arg, env, run = file.stages[0].instructions
    assert arg.pairs() == {"TOOL": "two words"} and env.pairs() == {"A": "1", "B": "x y"}
    assert (run.text, run.line) == ('echo one && echo "$A"', 9)
    assert run.mounts() == [
        {"type": "cache", "target": "/c"},
        {"type": "bind", "from": "b", "source": "/w", "target": "/t"},
    ]
    (copy,) = file.instructions("COPY")
    assert (copy.flag("from"), copy.flag("chown"), copy.words()) == (
        "base",
        None,
        ["a", "b", "/c/"],
    )
    assert file.instructions("CMD")[0].words() == ["python", "x.py"]


def test_build_arguments(written):
    assert dockerfile.read(written, {"IMAGE": "x:1", "TOOL": "t"}).stages[0].image == "x:1"
    with pytest.raises(ValueError, match=r"Dockerfile has no ARG \['KINDS'\], but .*'TOOL'"):
        dockerfile.read(written, {"KINDS": "x"})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$A/${A}b", "1/1b"), ("${B:-two}", "two"), ("${A:-two}", "1"), ("[$B]", "[]"), ("$", "$")],
)
def test_expand(text, expanded):
    assert dockerfile.expand(text, {"A": "1"}) == expanded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM a\nVOLUME /data", "line 2: VOLUME is not read here"),
        ("FROM a\nRUN cat <<X", "line 2: RUN is not read here, nor here-documents"),
        ("FROM a\nRUN a \\\n", "line 2: the file ends within an instruction"),
        ("ENV a=b\nFROM a", "line 1: only ARG may stand before the first FROM"),
    ],
)
def test_unsupported_instructions(text, message, tmp_path):
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(ValueError, match=message):
        dockerfile.read(tmp_path / "Dockerfile")


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("data", "data/a/b", True),
        ("data", "x/data", False),
        ("data", "dataloading/x", False),
        ("/data/", "data", True),
        ("**/data", "data/x", True),
        ("**/data", "x/y/data/z", True),
        (".venv*", ".venv-serve/bin/python", True),
        ("*.key", "a/b.key", False),
        ("**/*.key", "a/b.key", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("# a\n\na\n!a/b", "a/b", False),
        ("a\n!a/b", "a/c", True),
    ],
)
def test_dockerignore(pattern, path, ignored):
    assert Ignored(pattern)(path) is ignored


def test_context(tmp_path):
    for name in ("a/b.py", "a/build/c", "runs/log", ".dockerignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("runs\n**/build\n")
    (tmp_path / "link").symlink_to("a")
    assert context(tmp_path) == [".dockerignore", "a/b.py", "link"]
