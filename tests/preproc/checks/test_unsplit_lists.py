"""Lists with another separator: a warning, whose remedies work."""

from dataloading.spec.data_checks import read_findings
from dataloading.spec.feature_spec import FeatureSpec
from tests.preproc.transcode.test_transcode import run

LISTS = ("Drama", "Drama|War", "War|Drama|Comedy", "Comedy|War")


def test_remedies(tmp_path):
    path, flags = tmp_path / "films.csv", ("--label=liked", "--strict")
    rows = (f"{LISTS[i % 4]},c{i % 5},{i % 3 % 2}" for i in range(60))
    path.write_text("\n".join(["genres,city,liked", *rows]) + "\n")
    assert run(path, "--label=liked", output=tmp_path / "a") == 0
    (finding,) = (f for f in read_findings(tmp_path / "a") if f.check == "unsplit_lists")
    assert finding.columns == ("genres",) and "'Comedy|War' is one of 4 categories" in finding.seen
    assert "of 3 different values" in finding.seen
    assert run(path, *flags, output=tmp_path / "x") == 2
    assert run(path, *flags, "--categorical=genres", output=tmp_path / "b") == 0
    path.write_text(path.read_text().replace("|", ";"))
    assert run(path, *flags, output=tmp_path / "c") == 0
    assert FeatureSpec.from_yaml(tmp_path / "c/feature_spec.yaml").hotness("genres") == 3
