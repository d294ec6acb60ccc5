"""Messages and sizes in `docs/reference/file_formats.md` equal those of the code."""

import re

import pytest

from dataloading.spec import rules
from dataloading.spec.feature_spec import FeatureSpec


@pytest.fixture
def page(root) -> str:
    return (root / "docs/reference/file_formats.md").read_text()


def test_example_spec_and_its_error(page, tmp_path):
    text = re.search(r"feature_spec.yaml <<'END'\n(.*?)END\n", page, re.DOTALL).group(1)
    path = tmp_path / "feature_spec.yaml"
    path.write_text(text)
    spec = FeatureSpec.from_yaml(path)
    assert 8 * spec.sample_bytes(spec.source_spec["train"][1]) == 32
    path.write_text(text.replace("user: {dtype: int16", "user: {dtype: int8"))
    shown = re.search(r"\ndata/tiny/feature_spec.yaml: (.*)\n", page).group(1)
    with pytest.raises(ValueError, match=f"{re.escape(shown)}$"):
        FeatureSpec.from_yaml(path)


def test_allowed_words_on_the_page(page):
    words = rules.DTYPES + rules.SECTIONS + rules.FEATURE_KEYS + rules.CHUNK_KEYS
    words += rules.CHUNK_TYPES
    assert [word for word in words if f"`{word}`" not in page] == []
