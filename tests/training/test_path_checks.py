"""Wrong paths are reported before TensorFlow is imported."""

import json

import pytest

import main as entry
from config.command_line import parse
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from recipes.registry import DLRM
from tests.recipes.test_entry_scripts import TINY, in_process

# Runs dlrm once for each command line of a JSON list; prints exit codes and messages.
RUN = """
import contextlib, io, json, sys
import dlrm
results = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = dlrm.main(["dlrm.py", *command])
    results.append([code, stderr.getvalue(), "tensorflow" in sys.modules])
print(json.dumps(results))
"""


def mistakes(rows, folder):
    """(flags, message) of each mistake."""
    for name, file in (("logs", "day_0"), ("kaggle", "train.txt")):
        (folder / name).mkdir()
        (folder / name / file).touch()
    data, restore = f"--dataset_path={rows}", "--restore_checkpoint_path"
    here = "prepare it, then name the folder DATA here: python -m preproc.criteo"
    return [
        ([f"--dataset_path={folder}/nowhere"], "nowhere: the file or folder does not exist; "),
        ([f"--dataset_path={folder}/logs"], f"{here} --input {folder}/logs"),
        ([f"--dataset_path={folder}/kaggle"], here),
        ([data, "--mode=eval", f"{restore}={folder}/no"], f"{folder}/no: the folder does not"),
        ([data, f"--resume={folder}/no"], f"--resume {folder}/no: the folder does not exist"),
    ]


def test_wrong_paths_without_tensorflow(tiny, tmp_path, run_script):
    cases = mistakes(tiny, tmp_path)
    model, data = tmp_path / "model", f"--dataset_path={tiny}"
    code, _ = in_process(tmp_path, data, *TINY, f"--save_checkpoint_path={model}", "--max_steps=1")
    assert code == 0
    predict = [data, f"--restore_checkpoint_path={model}", "--mode=predict"]
    cases.append(([*predict, f"--predictions_path={model}.npy"], f"Is a directory: '{model}.npy'"))
    (tmp_path / "model.npy").mkdir()
    done = run_script("-c", RUN, json.dumps([flags for flags, _ in cases]))
    assert done.returncode == 0, done.stderr
    for (flags, message), (code, stderr, imported) in zip(
        cases, json.loads(done.stdout), strict=True
    ):
        assert code == entry.USER_ERROR and not imported, flags
        assert message in stderr, flags
        assert stderr.count("\n") == 1, stderr


def test_data_set_in_folder_of_nvidia(tiny, tmp_path):
    """NVIDIA's preparation of 2022 writes to binary_dataset; its commands name the folder above."""
    (tmp_path / "binary_dataset").symlink_to(tiny)
    config = parse(["dlrm.py", f"--dataset_path={tmp_path}"], DLRM)
    assert load_feature_spec(config) == FeatureSpec.from_yaml(tiny / "feature_spec.yaml")


@pytest.mark.quick("launcher0-2", "launcher1-None")
@pytest.mark.parametrize(
    ("launcher", "code"),
    [
        ({"HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}, "2"),
        ({"HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1"}, "None"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, "2"),
        ({"PMI_SIZE": "2"}, "None"),
    ],
)
def test_one_check_per_machine(launcher, code, run_script):
    """The others connect, and are ended by the launcher."""
    script = (
        "import main; from config import command_line; from recipes import execution\n"
        "from recipes.registry import DLRM\n"
        "parsed = command_line.parse(['dlrm.py', '--dataset_path=nowhere'], DLRM)\n"
        "try: print(execution.check_paths(parsed))\n"
        "except ValueError: print(main.USER_ERROR)"
    )
    done = run_script("-c", script, env=launcher)
    assert done.stdout.strip() == code, done.stderr
