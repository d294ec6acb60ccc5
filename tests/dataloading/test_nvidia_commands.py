"""Data tools with the commands and default paths of NVIDIA's documents."""

import shutil

import main
from dataloading.spec.feature_spec import FeatureSpec

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


def test_csv_to_training(run_script, root, tmp_path):
    """`gen_csv.py`, `cp`, `transcode.py` and `main.py` of multidataset.md; `/data` exists."""
    spec = tmp_path / "original.yaml"
    spec.write_text(ORIGINAL_SPEC)
    data = tmp_path / "data"
    (data / "conversion_output").mkdir(parents=True)

    def run(script, *flags):  # NVIDIA's default of --input is '', the working folder
        done = run_script(root / f"original/dlrm/{script}", *flags, cwd=data)
        assert done.returncode == 0, done.stderr

    run("gen_csv.py", "--feature_spec_in", spec, "--output", data)
    assert len((data / "train/label.bin").read_text().splitlines()) == 1000
    assert not list(data.glob(".gen_csv*"))
    shutil.copy(spec, data / "feature_spec.yaml")
    run("transcode.py", "--output", data / "converted")
    converted = FeatureSpec.from_yaml(data / "converted/feature_spec.yaml")
    assert {"train", "test"} == set(converted.source_spec)
    flags = [f"--dataset_path={data / 'converted'}", "--batch_size=128", "--preset=terabyte"]
    flags += ["--embedding_dim=4", "--bottom_mlp_dims=8,4", "--top_mlp_dims=8,1"]
    assert main.main(["main.py", *flags, f"--run_dir={tmp_path / 'run'}"]) == 0
