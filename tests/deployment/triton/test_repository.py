"""Models that appear in a repository together, or not at all."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployment.triton.repository import (
    MARKER,
    appear_together,
    check_name,
    check_replaceable,
    write_marker,
)

MODELS = ("m_sparse", "m_dense", "m")


def deploy(repository: Path, models=MODELS, text: str = "new", overwrite: bool = False) -> None:
    """Writes models with one file each."""
    with appear_together(repository, models, overwrite, print) as staging:
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
    appears = appear_together(repository, MODELS, False, print)
    with pytest.raises(KeyboardInterrupt), appears as staging:
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


@pytest.mark.parametrize("fails", range(12))
def test_ctrl_c_between_two_renames(tmp_path, monkeypatch, fails):
    """Before and behind each of them."""
    repository = tmp_path / "repository"
    deploy(repository)
    rename, calls = Path.rename, []

    def interrupted(source, target):
        calls.append(target)
        if fails == 2 * len(calls) - 2:
            raise KeyboardInterrupt
        rename(source, target)
        if fails == 2 * len(calls) - 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deploy(repository, text="newer", overwrite=True)
    assert content(repository) == {"m": "new", "m_dense": "new", "m_sparse": "new"}


def test_models_that_cannot_be_brought_back_are_not_lost(tmp_path, monkeypatch, capsys):
    """The message says where they are; the next deployment brings them back."""
    repository = tmp_path / "repository"
    deploy(repository)
    rename, calls = Path.rename, []

    def failing(source, target):
        calls.append(target)
        if len(calls) >= 3:
            raise OSError(5, "Input/output error")
        rename(source, target)

    with monkeypatch.context() as broken, pytest.raises(OSError) as raised:
        broken.setattr(Path, "rename", failing)
        deploy(repository, text="newer", overwrite=True)
    (hidden,) = tmp_path.glob(".repository.*")
    said = f"took away m m_dense and could not bring it back .*: it is in {hidden}/replaced; deploy"
    assert re.search(said, str(raised.value))
    assert sorted(os.listdir(hidden / "replaced")) == ["m", "m_dense"]
    deploy(repository, ["n"])
    said = (
        f"{repository}: a deployment was killed, {hidden} is removed; m_dense m is what was there"
    )
    assert said in capsys.readouterr().out
    assert content(repository) == {"m": "new", "m_dense": "new", "m_sparse": "new", "n": "new"}


# Deploys as this file does; is killed before rename number argv[2], or while it writes.
KILLED = """
import os, signal, sys
from pathlib import Path
from deployment.triton import repository

rename, calls = Path.rename, []

def killed(*arguments):
    calls.append(arguments)
    if len(calls) > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*arguments)

Path.rename = killed
models = ["m_sparse", "m_dense", "m"]
with repository.appear_together(Path(sys.argv[1]), models, True, print) as staging:
    for model in models:
        (staging / model).mkdir()
        (staging / model / "text").write_text("newer")
        repository.write_marker(staging / model, {}, models)
    if sys.argv[2] == "-1":
        killed()
"""


@pytest.mark.parametrize(
    ("renames", "back"), [(-1, ""), (2, "m_dense m"), (4, "m_sparse m_dense m")]
)
def test_a_kill(tmp_path, root, capsys, renames, back):
    """The next deployment finds what was there before."""
    repository = tmp_path / "repository"
    deploy(repository)
    command = [sys.executable, "-c", KILLED, str(repository), str(renames)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (hidden,) = tmp_path.glob(".repository.*")
    with pytest.raises(ValueError, match="has a model m already"):
        deploy(repository)
    said = capsys.readouterr().out
    assert f"{repository}: a deployment was killed, {hidden} is removed" in said
    assert ("; " + back + " is what was there before" in said) == bool(back)
    assert content(repository) == {"m": "new", "m_dense": "new", "m_sparse": "new"}


def test_deployments_at_work_and_of_others_are_left_alone(tmp_path, capsys):
    """A repository of a longer name; one that has the lock; a folder that is none of ours."""
    repository = tmp_path / "repository"
    (tmp_path / ".repository.theirs").mkdir()
    longer = tmp_path / ".repository.b.x"
    longer.mkdir()
    (longer / "claim.json").write_text('{"repository": "repository.b"}')
    with appear_together(repository, ["m"], False, print) as staging:
        (staging / "m").mkdir()
        deploy(repository, ["n"])
        assert staging.is_dir()
    assert sorted(os.listdir(repository)) == ["m", "n"]
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.glob(".*")) == [longer.name, ".repository.theirs"]


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
