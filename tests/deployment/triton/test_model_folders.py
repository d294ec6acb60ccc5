"""Models of a repository that a path means."""

import pytest

from deployment.triton.model_folders import ModelFolders, find_model
from deployment.triton.repository import write_origin
from tests.deployment.serving.made_models import write_clicks


def models(repository, **roles):
    """Writes models of these roles to a repository; the role ensemble is that of all others."""
    for name, role in roles.items():
        folder = repository / name / "1"
        if role == "ensemble":
            folder.mkdir(parents=True)
            parts = [part for part in roles if part.startswith(f"{name}_")]
            write_origin(folder.parent, {}, [*parts, name])
        else:
            write_clicks(folder, role=role)
    return repository


ENSEMBLE = {"e": "ensemble", "e_sparse": "sparse", "e_dense": "dense"}


@pytest.mark.parametrize(
    ("roles", "path", "by"),
    [
        ({"a": "scorer"}, ".", ["a/1"]),
        ({"a": "scorer"}, "a/1", ["a/1"]),
        (ENSEMBLE, ".", ["e_sparse/1", "e_dense/1"]),
        (ENSEMBLE | {"a": "scorer"}, "a", ["a/1"]),
        ({"a": "scorer", "a_checks": "checks"}, ".", ["a/1"]),
    ],
)
def test_model_of_path(tmp_path, roles, path, by):
    repository = models(tmp_path / "repository", **roles)
    folders = find_model(repository / path)
    assert folders == ModelFolders(*(repository / folder for folder in by))


@pytest.mark.parametrize(
    ("roles", "path", "report"),
    [
        ({}, "none", "does not exist"),
        ({}, ".", "has no model"),
        ({"a": "scorer"} | ENSEMBLE, ".", "several models; name one of them: .*/a, .*/e$"),
        ({"b": "ensemble", "b_sparse": "sparse"}, "b", "only a part of an ensemble"),
        (ENSEMBLE, "e_sparse/1", "only a part of an ensemble"),
    ],
)
def test_paths_without_model(tmp_path, roles, path, report):
    repository = models(tmp_path / "repository", **roles)
    repository.mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=f"^--model .*{report}"):
        find_model(repository / path)
