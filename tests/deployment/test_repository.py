"""Models that appear in a repository together, or not at all."""

import json
import os
from pathlib import Path

import pytest

from deployment.repository import (
    MARKER,
    appear_together,
    check_name,
    check_replaceable,
    write_marker,
)

MODELS = ("m_sparse", "m_dense", "m")


def deploy(repository: Path, models=MODELS, text: str = "new", overwrite: bool = False) -> None:
    """Writes models with one file each."""
    with appear_together(repository, models, overwrite) as staging:
        for model in models:
            (staging / model).mkdir()
            (staging / model / "text").write_text(text)
            write_marker(staging / model, {"recipe": "test"}, models)


def content(repository: Path) -> dict[str, str]:
    """Text of each model; and nothing else is in the repository or beside it."""
    beside = [name for name in os.listdir(repository.parent) if name != repository.name]
    assert beside == []
    return {path.name: (path / "text").read_text() for path in sorted(repository.iterdir())}


def test_all_of_them(tmp_path):
    repository = tmp_path / "a" / "repository"
    deploy(repository)
    assert content(repository) == {"m": "new", "m_dense": "new", "m_sparse": "new"}
    marker = json.loads((repository / "m" / MARKER).read_text())
    assert marker == {"recipe": "test", "models": list(MODELS)}
    umask = os.umask(0)
    os.umask(umask)
    assert (repository / "m").stat().st_mode & 0o777 == 0o777 & ~umask, "others may read it"


def test_nothing_of_what_failed(tmp_path):
    """A repository that was not there before is not there behind it."""
    repository = tmp_path / "repository"
    with pytest.raises(KeyboardInterrupt), appear_together(repository, MODELS, False) as staging:
        (staging / "m").mkdir()
        assert not repository.exists(), "a server that polls sees no half model"
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_the_ensemble_comes_last_and_goes_first(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    deploy(repository)
    seen = []
    rename = Path.rename

    def watched(source, target):
        rename(source, target)
        seen.append(sorted(os.listdir(repository)))

    monkeypatch.setattr(Path, "rename", watched)
    deploy(repository, text="newer", overwrite=True)
    assert seen == [
        *(["m_dense", "m_sparse"], ["m_sparse"], []),
        *(["m_sparse"], ["m_dense", "m_sparse"], ["m", "m_dense", "m_sparse"]),
    ]
    assert set(content(repository).values()) == {"newer"}


@pytest.mark.parametrize("fails", range(6))
def test_a_rename_that_fails_leaves_what_was_there(tmp_path, monkeypatch, fails):
    repository = tmp_path / "repository"
    deploy(repository)
    rename, calls = Path.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == fails + 1:
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="could not take their names .*cross-device.* is there again"):
        deploy(repository, text="newer", overwrite=True)
    assert content(repository) == {"m": "new", "m_dense": "new", "m_sparse": "new"}


def test_other_models_stay(tmp_path):
    repository = tmp_path / "repository"
    (repository / "theirs").mkdir(parents=True)
    (repository / "theirs" / "text").write_text("theirs")
    deploy(repository)
    deploy(repository, ["n"], overwrite=True)
    assert sorted(content(repository)) == ["m", "m_dense", "m_sparse", "n", "theirs"]


def test_one_model_in_the_place_of_an_ensemble(tmp_path):
    """Its parts go with it; not so what has taken the name of one since then."""
    repository = tmp_path / "repository"
    deploy(repository)
    (repository / "m_dense" / MARKER).unlink()
    deploy(repository, ["m"], "newer", overwrite=True)
    assert content(repository) == {"m": "newer", "m_dense": "new"}


def test_a_part_of_another_deployment_stays(tmp_path):
    repository = tmp_path / "repository"
    deploy(repository)
    with pytest.raises(ValueError, match="m_sparse is of another deployment, m, and stays: choose"):
        deploy(repository, ["m_sparse"], overwrite=True)
    assert set(content(repository).values()) == {"new"}


def test_what_is_there_is_replaced_on_request_only(tmp_path):
    repository = tmp_path / "repository"
    deploy(repository)
    with pytest.raises(ValueError, match=r"has a model m already: replace it with --overwrite"):
        deploy(repository)
    assert set(content(repository).values()) == {"new"}


@pytest.mark.parametrize("marker", [None, "no JSON", "[]", '{"models": 3}', '{"models": [3]}'])
def test_only_our_models_are_replaced(tmp_path, marker):
    repository = tmp_path / "repository"
    (repository / "m").mkdir(parents=True)
    (repository / "m" / "text").write_text("theirs")
    if marker is not None:
        (repository / "m" / MARKER).write_text(marker)
    with pytest.raises(ValueError, match=r"repository/m is no model that this tool wrote"):
        deploy(repository, overwrite=True)
    assert content(repository) == {"m": "theirs"}


def test_a_link_is_not_followed(tmp_path):
    deploy(tmp_path / "real")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "m").symlink_to(tmp_path / "real" / "m")
    with pytest.raises(ValueError, match="is no model that this tool wrote"):
        check_replaceable(repository, MODELS, overwrite=True)


def test_a_marker_names_no_folder_elsewhere(tmp_path):
    """A changed marker must not make the tool delete what lies outside."""
    repository = tmp_path / "repository"
    deploy(repository)
    deploy(tmp_path / "other")
    write_marker(repository / "m", {}, ["../other/m", "/", "m"])
    assert check_replaceable(repository, ["m"], overwrite=True) == ["m"]


def test_a_file_or_a_mount_point_is_no_repository(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--model_repository .*file is no folder"):
        check_replaceable(tmp_path / "file", MODELS, overwrite=False)
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(ValueError, match="is a mount point: .* Name a folder in it"):
        check_replaceable(tmp_path, MODELS, overwrite=False)


@pytest.mark.parametrize("name", ["dlrm", "DCNv2-eu.1", "7", "x" * 100])
def test_good_names(name):
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "a b", "é", "x" * 101, "a\n"])
def test_bad_names(name):
    with pytest.raises(ValueError, match="--model_name .*: letters, digits, _ . and -"):
        check_name(name)
