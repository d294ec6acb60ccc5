"""Models that appear in a repository together, or not at all."""

import json
import os
import shutil
from pathlib import Path

import pytest

from deployment.triton.repository import (
    MARKER,
    check_name,
    check_replaceable,
    staged_models,
    write_marker,
)

MODELS = ("m_sparse", "m_dense", "m")
ALL_NEW = {"m": "new", "m_dense": "new", "m_sparse": "new"}


def write_models(folder: Path, models, text: str) -> None:
    """Writes models with one file each."""
    for model in models:
        (folder / model / "1").mkdir(parents=True)
        (folder / model / "text").write_text(text)
        write_marker(folder / model, {"recipe": "test"}, models)


def deploy(repository: Path, models=MODELS, text: str = "new", overwrite: bool = False) -> None:
    with staged_models(repository, models, overwrite) as staging:
        write_models(staging, models, text)


def content(repository: Path) -> dict[str, str]:
    """Text of each model; the repository has nothing else, also not next to it."""
    assert os.listdir(repository.parent) == [repository.name]
    return {path.name: (path / "text").read_text() for path in sorted(repository.iterdir())}


@pytest.fixture
def repository(tmp_path):
    """A repository with an ensemble `m`."""
    deploy(tmp_path / "repository")
    return tmp_path / "repository"


def test_new_repository(tmp_path):
    repository = tmp_path / "a" / "repository"
    deploy(repository)
    assert content(repository) == ALL_NEW
    marker = json.loads((repository / "m_dense" / MARKER).read_text())
    assert marker == {"recipe": "test", "models": list(MODELS)}
    umask = os.umask(0)
    os.umask(umask)
    assert (repository / "m").stat().st_mode & 0o777 == 0o777 & ~umask, "others may read it"
    moved = repository.rename(tmp_path / "a" / "moved")
    assert content(moved) == ALL_NEW, "links are relative"


def test_failed_deployment(tmp_path):
    """A repository that did not exist before does not exist after it."""
    repository = tmp_path / "repository"
    with pytest.raises(KeyboardInterrupt), staged_models(repository, MODELS, False) as staging:
        (staging / "m").mkdir()
        assert not repository.exists(), "a server that polls sees no partial model"
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(18, "Invalid cross-device link"), KeyboardInterrupt()])
@pytest.mark.parametrize("number", range(8))
def test_interrupted_rename(repository, monkeypatch, number, error):
    """Fails before or after each rename: of the two parts, of the old and of the new deployment."""
    rename, calls = Path.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == number // 2 + 1:
            if number % 2:
                rename(source, target)
            raise error
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(error)):
        deploy(repository, text="newer", overwrite=True)
    expected = "newer" if number == 7 else "new"
    assert set(content(repository).values()) == {expected}


@pytest.mark.parametrize("killed_before", [3, 4])
def test_kill_during_renames(repository, killed_before, monkeypatch):
    """The renames of a killed deployment: afterwards old models, or none, are served."""
    rename, calls = Path.rename, []

    class Killed(BaseException):
        pass

    def killed(source, target):
        calls.append(target)
        if len(calls) >= killed_before:
            raise Killed
        return rename(source, target)

    with monkeypatch.context() as context, pytest.raises(Killed):
        context.setattr(Path, "rename", killed)
        context.setattr(shutil, "rmtree", lambda *_, **__: None)
        deploy(repository, text="newer", overwrite=True)
    served = {path.name for path in repository.iterdir() if path.exists()}
    assert served == (set(MODELS) if killed_before == 3 else set())
    (staging,) = repository.parent.glob(".repository.*")
    shutil.rmtree(staging)
    deploy(repository, text="newest", overwrite=True)
    assert set(content(repository).values()) == {"newest"}


def test_folders_of_earlier_versions(tmp_path):
    """Parts were folders in the repository; they are replaced, too."""
    repository = tmp_path / "repository"
    write_models(repository, MODELS, "old")
    deploy(repository, overwrite=True)
    assert content(repository) == ALL_NEW
    assert (repository / "m_sparse").is_symlink()
    shutil.rmtree(repository)
    write_models(repository, MODELS, "old")
    deploy(repository, ["m"], overwrite=True)
    assert content(repository) == {"m": "new"}


def test_kept_models(repository):
    (repository / "theirs").mkdir()
    (repository / "theirs" / "text").write_text("theirs")
    deploy(repository, ["n"], overwrite=True)
    assert content(repository) == ALL_NEW | {"n": "new", "theirs": "theirs"}


def test_monolithic_model_in_place_of_an_ensemble(repository):
    """Its parts are removed, but not what has taken the name of one since then."""
    (repository / "m_dense").unlink()
    write_models(repository, ["m_dense"], "theirs")
    deploy(repository, ["m"], "newer", overwrite=True)
    assert content(repository) == {"m": "newer", "m_dense": "theirs"}
    shutil.rmtree(repository / "m_dense")
    deploy(repository, text="ensemble", overwrite=True)
    assert set(content(repository).values()) == {"ensemble"}


def test_part_of_another_deployment(repository):
    with pytest.raises(ValueError, match="m_sparse is of another deployment, m, and stays: choose"):
        deploy(repository, ["m_sparse"], overwrite=True)
    assert content(repository) == ALL_NEW


def test_missing_overwrite_flag(repository):
    with pytest.raises(ValueError, match=r"has a model m already: replace it with --overwrite"):
        deploy(repository)
    assert content(repository) == ALL_NEW


@pytest.mark.parametrize(
    "marker", [None, "no JSON", "[]", '{"models": 3}', '{"models": [3]}', '{"models": []}']
)
def test_models_of_others(tmp_path, marker):
    repository = tmp_path / "repository"
    (repository / "m").mkdir(parents=True)
    (repository / "m" / "text").write_text("theirs")
    if marker is not None:
        (repository / "m" / MARKER).write_text(marker)
    with pytest.raises(ValueError, match=r"repository/m was not written by this tool"):
        deploy(repository, overwrite=True)
    assert content(repository) == {"m": "theirs"}


def test_foreign_link(tmp_path, repository):
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "m").symlink_to(repository / "m")
    with pytest.raises(ValueError, match="was not written by this tool"):
        check_replaceable(tmp_path / "linked", MODELS, overwrite=True)


def test_marker_naming_a_folder_elsewhere(tmp_path, repository):
    """A changed marker must not make the tool delete what lies outside."""
    deploy(tmp_path / "other")
    write_marker(repository / "m", {}, ["../other/m", "/", "m"])
    assert check_replaceable(repository, ["m"], overwrite=True) == set()


def test_invalid_repository(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--model_repository .*file is not a folder"):
        check_replaceable(tmp_path / "file", MODELS, overwrite=False)
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(ValueError, match="is a mount point: .* Name a folder in it"):
        check_replaceable(tmp_path, MODELS, overwrite=False)


def test_names():
    for name in ("dlrm", "DCNv2-eu.1", "7", "x" * 100):
        check_name(name)
    for name in ("", ".", "..", ".x", "a/b", "a b", "é", "x" * 101, "a\n"):
        with pytest.raises(ValueError, match="--model_name .*: letters, digits, _ . and -"):
            check_name(name)
