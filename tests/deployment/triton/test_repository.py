"""Models that appear in a repository together, or not at all."""

import itertools
import os
from pathlib import Path

import pytest

from deployment.triton import repository as repositories
from deployment.triton.repository import Deployment, check_name, models_of, write_origin
from runtime.files.outputs import MARKER

MODELS = ("m_sparse", "m_dense", "m")


def deploy(
    repository: Path, models=MODELS, text: str = "new", overwrite: bool = False, linked=()
) -> None:
    """Deploys models with one file each, and removes previous parts."""
    deployment = Deployment(repository, models, linked, overwrite)
    with deployment.staging() as staging:
        for model in models:
            (staging / model / "1").mkdir(parents=True)
            (staging / model / "text").write_text(text)
            (staging / model / "model.py").write_text("")
            write_origin(staging / model, {"recipe": "test"}, models)
        deployment.publish(staging, later=["1/model.plan"])
    deployment.remove(deployment.previous_parts())


def content(repository: Path) -> dict[str, str]:
    """Text of each model; the repository has nothing else, also not next to it."""
    assert os.listdir(repository.parent) == [repository.name]
    return {path.name: (path / "text").read_text() for path in sorted(repository.iterdir())}


def served(repository: Path, model: str = "m") -> set[str]:
    """Texts of the models that a server would load for a model."""
    return {(repository / name / "text").read_text() for name in models_of(repository / model)}


@pytest.fixture
def repository(tmp_path):
    """A repository with an ensemble `m`."""
    deploy(tmp_path / "repository")
    return tmp_path / "repository"


def test_new_repository(tmp_path):
    repository = tmp_path / "a" / "repository"
    deploy(repository, linked=["m_dense"])
    assert content(repository) == dict.fromkeys(sorted(MODELS), "new")
    assert os.readlink(repository / "m_dense") == "m/1/m_dense"
    assert models_of(repository / "m_dense") == list(MODELS)
    umask = os.umask(0)
    os.umask(umask)
    assert (repository / "m").stat().st_mode & 0o777 == 0o777 & ~umask, "others may read it"
    moved = repository.rename(tmp_path / "a" / "moved")
    assert content(moved) == dict.fromkeys(sorted(MODELS), "new"), "links are relative"


def test_failed_deployment(tmp_path):
    """A repository that did not exist before does not exist after it."""
    repository = tmp_path / "repository"
    with pytest.raises(KeyboardInterrupt), Deployment(repository, MODELS).staging() as staging:
        (staging / "m").mkdir()
        assert not repository.exists(), "a server that polls sees no partial model"
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


class Killed(BaseException):
    """The process ends without any cleanup."""


@pytest.mark.parametrize("linked", [(), ("x", "y")])
def test_kill_at_each_rename(tmp_path, monkeypatch, linked):
    """The previous or the new models are complete at any moment, and the next run cleans up."""
    repository = tmp_path / "repository"
    before = ("x", "y", "m") if linked else ("m_1", "n_1", "m")
    after = before if linked else ("m_2", "n_2", "m")
    release = repositories.OwnedFolder.release
    for number in itertools.count():
        deploy(repository, before, "old", overwrite=True, linked=linked)
        calls = itertools.count()

        def rename(*arguments, run, number=number, calls=calls):
            if next(calls) == number:
                raise Killed
            return run(*arguments)

        with monkeypatch.context() as context:
            for module, name in ((os, "rename"), (repositories.outputs, "exchange")):
                run = getattr(module, name)
                context.setattr(module, name, lambda *a, run=run: rename(*a, run=run))
            context.setattr(
                repositories.OwnedFolder, "release", lambda self, remove: release(self, False)
            )
            context.setattr(repositories.outputs, "remove_folder", lambda folder: None)
            try:
                deploy(repository, after, "new", overwrite=True, linked=linked)
                break
            except Killed:
                assert served(repository) in ({"old"}, {"new"})
    assert number == 4 and served(repository) == {"new"}
    deploy(repository, after, "newer", overwrite=True, linked=linked)
    assert content(repository) == dict.fromkeys(sorted(after), "newer")


def test_kept_models(repository):
    with pytest.raises(ValueError, match="repository/m exists .*; replace it with --overwrite"):
        deploy(repository)
    (repository / "theirs").mkdir()
    (repository / "theirs" / "text").write_text("theirs")
    deploy(repository, ["n"], overwrite=True)
    expected = dict.fromkeys(MODELS, "new") | {"n": "new", "theirs": "theirs"}
    assert content(repository) == expected


def test_names_given_to_parts_and_not(repository):
    deploy(repository, ["s", "m_dense_2", "m"], "newer", overwrite=True, linked=["s"])
    assert content(repository) == dict.fromkeys(("m", "m_dense_2", "s"), "newer")
    deploy(repository, ["m"], "newest", overwrite=True)
    assert content(repository) == {"m": "newest"}


def test_files_of_the_serving_machine(repository):
    """Compiled Python and a TensorRT plan are part of a model; other files are not."""
    compiled = repository / "m/__pycache__/model.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_text("")
    (repository / "m/1/model.plan").write_text("")
    deploy(repository, text="newer", overwrite=True)
    assert content(repository) == dict.fromkeys(MODELS, "newer")
    (repository / "m/1/notes.txt").write_text("theirs")
    with pytest.raises(ValueError, match="repository/m holds 1/notes.txt, which"):
        deploy(repository, text="newest", overwrite=True)
    assert content(repository) == dict.fromkeys(MODELS, "newer")


@pytest.mark.parametrize("linked", [(), ("m_sparse",)])
def test_part_of_another_deployment(repository, linked):
    with pytest.raises(ValueError, match="repository/m_sparse"):
        deploy(repository, ["m_sparse", "n"], overwrite=True, linked=linked)
    with pytest.raises(ValueError, match="repository/m_sparse"):
        deploy(repository, ["m_sparse"], overwrite=True)
    assert content(repository) == dict.fromkeys(MODELS, "new")


@pytest.mark.parametrize("marker", [None, "no JSON", '{"version": 1, "files": 3}'])
def test_models_of_others(tmp_path, marker):
    repository = tmp_path / "repository"
    (repository / "m").mkdir(parents=True)
    (repository / "m" / "text").write_text("theirs")
    if marker is not None:
        (repository / "m" / MARKER).write_text(marker)
    with pytest.raises(ValueError, match="repository/m: expected"):
        deploy(repository, overwrite=True)
    assert content(repository) == {"m": "theirs"}


def test_invalid_repository(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--model_repository .*file is not a folder"):
        Deployment(tmp_path / "file", MODELS)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "m").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="linked/m is a symbolic link"):
        Deployment(tmp_path / "linked", MODELS, overwrite=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(ValueError, match="is a mount point: .* Name a folder in it"):
        Deployment(tmp_path, MODELS)


def test_names():
    for name in ("dlrm", "DCNv2-eu.1", "7", "x" * 100):
        check_name(name)
    for name in ("", ".", "..", ".x", "a/b", "a b", "é", "x" * 101, "a\n"):
        with pytest.raises(ValueError, match="--model_name .*: letters, digits, _ . and -"):
            check_name(name)
