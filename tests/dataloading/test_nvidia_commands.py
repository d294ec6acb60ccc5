"""Data tools with the commands and default paths of NVIDIA's documents."""

import shutil

import main
from dataloading.spec.feature_spec import FeatureSpec
from preproc import gen_csv

# As in NVIDIA's example: names of features and files end in .bin, lists are shared by an anchor.
ORIGINAL_SPEC = """
channel_spec:
  categorical: [cat_0.bin, cat_1.bin]
  label: [label]
  numerical: &id001 [num_0, num_1]
feature_spec:
  cat_0.bin: {cardinality: 10}
  cat_1.bin: {cardinality: 200}
  label: {}
  num_0: {}
  num_1: {}
metadata: {}
source_spec:
  test:
  - {features: *id001, files: [test/numerical.bin], type: csv}
  - {features: [label], files: [test/label.bin], type: csv}
  - {features: [cat_0.bin, cat_1.bin], files: [test/catpart1.bin], type: csv}
  train:
  - {features: *id001, files: [train/numerical.bin], type: csv}
  - {features: [label], files: [train/label.bin], type: csv}
  - {features: [cat_0.bin, cat_1.bin], files: [train/catpart0.bin], type: csv}
"""


def test_csv_to_training(run_script, tmp_path):
    """`gen_csv.py`, `cp`, `transcode.py` and `main.py` of multidataset.md; `/data` exists."""
    spec = tmp_path / "original.yaml"
    spec.write_text(ORIGINAL_SPEC)
    data = tmp_path / "data"
    (data / "conversion_output").mkdir(parents=True)

    def run(script, *flags):
        done = run_script(f"original/dlrm/{script}", *flags)
        assert done.returncode == 0, done.stderr

    run("gen_csv.py", "--feature_spec_in", spec, "--output", data)
    assert len((data / "train/label.bin").read_text().splitlines()) == 1000
    assert not list(data.glob(".gen_csv*"))
    shutil.copy(spec, data / "feature_spec.yaml")
    run("transcode.py", "--input", data, "--output", data / "converted")
    converted = FeatureSpec.from_yaml(data / "converted/feature_spec.yaml")
    assert {"train", "test"} == set(converted.source_spec)
    flags = [f"--dataset_path={data / 'converted'}", "--batch_size=128", "--preset=terabyte"]
    flags += ["--embedding_dim=4", "--bottom_mlp_dims=8,4", "--top_mlp_dims=8,1"]
    assert main.main(["main.py", *flags, f"--run_dir={tmp_path / 'run'}"]) == 0


def test_input_of_the_working_folder(tmp_path, monkeypatch):
    """NVIDIA's default of --input is '', the working folder."""
    (tmp_path / "spec.yaml").write_text(ORIGINAL_SPEC)
    raw = tmp_path / "raw"
    assert gen_csv.main([f"--feature_spec_in={tmp_path / 'spec.yaml'}", f"--output={raw}"]) == 0
    monkeypatch.chdir(raw)
    from preproc.transcode.__main__ import main as transcode

    assert transcode([f"--output={tmp_path / 'out'}"]) == 0
    assert FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").num_samples("train") == 1000
