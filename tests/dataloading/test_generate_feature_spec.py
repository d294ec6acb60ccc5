"""`python -m dataloading.generate_feature_spec`: Criteo's sizes, or your own."""

import pytest

from dataloading.generate_feature_spec import main
from dataloading.spec.feature_spec import FeatureSpec


@pytest.mark.parametrize(
    ("variant", "gib"), [("criteo_t15_synthetic", 16), ("criteo_t0_synthetic", 421)]
)
def test_variants(variant, gib, tmp_path, capsys):
    """The tables have the published size: 128 columns of float32."""
    path = tmp_path / "new/spec.yaml"
    assert main([f"--dst={path}", f"--variant={variant}"]) == 0
    assert f"written: {path}" in capsys.readouterr().out
    spec = FeatureSpec.from_yaml(path)
    assert len(spec.channel("numerical")) == 13
    cardinalities = spec.cardinalities("categorical")
    assert len(cardinalities) == 26
    assert sum(cardinalities) * 128 * 4 / (1 << 30) == pytest.approx(gib, abs=0.6)
    assert {spec.feature_spec[name]["alpha"] for name in spec.channel("categorical")} == {1.45}


def test_own_numbers(tmp_path):
    path = tmp_path / "spec.yaml"
    own = ["--num_numerical=2", "--cardinalities=10,1000", "--hotness=1,3", "--alpha=0.5"]
    assert main([f"--dst={path}", *own]) == 0
    spec = FeatureSpec.from_yaml(path)
    assert spec.cardinalities("categorical") == [10, 1000]
    assert spec.hotnesses("categorical") == [1, 3]
    assert spec.feature_spec["cat_1"]["alpha"] == 0.5
    assert spec.channel("numerical") == ("num_0", "num_1")
    path.unlink()
    assert main([f"--dst={path}", "--cardinalities="]) == 0
    spec = FeatureSpec.from_yaml(path)
    assert (len(spec.channel("numerical")), spec.channel("categorical")) == (13, ())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--variant=criteo_t3_synthetic", "--alpha=1"], "--alpha is only read without --variant"),
        (["--num_numerical=3"], "neither --variant nor --cardinalities; give one of them"),
        (["--cardinalities=5", "--num_numerical=-1"], "--num_numerical: expected at least 0"),
    ],
)
def test_refusals(flags, message, tmp_path, capsys):
    path = tmp_path / "spec.yaml"
    assert main([f"--dst={path}", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not path.exists()


def test_repeated_command(tmp_path, capsys):
    """A command run twice, as in NVIDIA's document; a spec of other sizes is left as it is."""
    command = [f"--dst={tmp_path / 'spec.yaml'}", "--variant=criteo_t15_synthetic"]
    assert main(command) == main(command) == 0
    assert f"already there: {tmp_path / 'spec.yaml'}" in capsys.readouterr().out
    assert main([command[0], "--variant=criteo_t3_synthetic"]) == 2
    assert "exists; remove it or choose another file" in capsys.readouterr().err
