"""Codes of which nearly all are numbers: a warning with examples, until they are stated."""

from dataloading.spec.data_checks import read_findings
from tests.preproc.transcode.test_transcode import run


def test_codes_of_icd(tmp_path, capsys):
    codes = [f"{i % 300}.{i % 9}" if i % 40 else f"V{i % 360}" for i in range(1, 4000)]
    rows = (f"{code},{code},c{i % 4},{i % 3 % 2}" for i, code in enumerate(codes))
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["diagnosis,code,city,died", *rows]) + "\n")
    assert run(path, "--label=died", output=tmp_path / "a") == 0
    (finding,) = (f for f in read_findings(tmp_path / "a") if f.check == "mixed_texts")
    assert (finding.level, finding.columns) == ("warning", ("diagnosis",))
    assert "97.5% of the values are numbers, others are 'V0', 'V120', 'V160'" in finding.seen
    assert "--categorical diagnosis" in finding.remedy
    assert finding.seen in capsys.readouterr().out
    assert run(path, "--label=died", "--strict", output=tmp_path / "b") == 2
    assert "mixed_texts" in capsys.readouterr().err
    flags = ("--label=died", "--strict", "--categorical=diagnosis")
    assert run(path, *flags, output=tmp_path / "c") == 0
    assert "mixed_texts" not in [finding.check for finding in read_findings(tmp_path / "c")]
