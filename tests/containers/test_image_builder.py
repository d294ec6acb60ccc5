"""Steps of the stand-in for an engine that need no mounts; test_cpu_image.py has the rest."""

from types import SimpleNamespace

import pytest

from tests.containers import dockerfile, image_builder
from tests.containers.image_builder import Builder, Image, Layer

pytestmark = pytest.mark.long

NETWORK = SimpleNamespace(environment={}, mounts=list)


@pytest.fixture
def build(tmp_path):
    """Builds the last stage of a text upon an image that has one user."""
    (tmp_path / "base/etc").mkdir(parents=True)
    (tmp_path / "base/etc/passwd").write_text("me:x:1000:1001:,,,:/home/me:/bin/sh\n")
    base = Image((Layer(tmp_path / "base", "base", 0.0),), {"PATH": "/bin"})

    def build(text, **arguments):
        (tmp_path / "Dockerfile").write_text(text)
        file = dockerfile.read(tmp_path / "Dockerfile", arguments)
        builder = Builder(tmp_path / "built", tmp_path, {"base:1": base}, NETWORK)
        return builder.build(file, file.stages[-1])

    return build


TEXT = """
ARG KIND=a
FROM base:1 AS kind-a
ENV LETTER=a
FROM base:1 AS kind-b
ARG SUFFIX=x
ENV LETTER=b${SUFFIX} PATH=/new:${PATH}
FROM kind-${KIND}
LABEL a=b
SHELL ["/bin/bash", "-c"]
USER 1000
CMD ["a", "b c"]
"""


def test_settings_of_an_image(build):
    assert build(TEXT).environment == {"PATH": "/bin", "LETTER": "a"}
    image = build(TEXT, KIND="b")
    assert image.environment == {"PATH": "/new:/bin", "LETTER": "bx"}
    assert (image.shell, image.command) == (("/bin/bash", "-c"), ("a", "b c"))
    assert image.account() == (1000, 1001, "/home/me")
    assert image_builder.replace(image, user="4242").account() == (4242, 0, "/")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ENTRYPOINT ["x"]', "line 2: ENTRYPOINT is not done here"),
        ("RUN --mount=type=secret,target=/s true", "line 2: no such mount here: .*secret"),
    ],
)
def test_unsupported_lines(build, line, message):
    with pytest.raises(ValueError, match=message):
        build(f"FROM base:1\n{line}\n")


def test_failing_command(build, monkeypatch):
    def fails(image, upper, root, steps, log):
        log.write_text("\n".join(["first", *["middle"] * 50, "the reason"]))
        return 3, log

    monkeypatch.setattr(image_builder, "in_namespaces", fails)
    with pytest.raises(RuntimeError, match=r"line 2: exit status 3\nmiddle\n(.*\n)+the reason"):
        build("FROM base:1\nRUN false\n")
