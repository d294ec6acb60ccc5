"""Files, classes and functions that a training step enters, from the shuffling reader on."""

import sys
from pathlib import Path

from dataloading.pipeline import sample_dataset
from nn.train.trainer import Trainer
from tests.recipes.test_entry_scripts import TINY, in_process


def test_files_classes_and_functions(tiny, tmp_path, monkeypatch, root):
    entered, steps, reads = set(), [], []
    own = f"{root}/"

    def profile(frame, event, _):
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event == "call" and file.startswith(own) and not file.startswith(f"{own}.venv"):
            entered.add((file.removeprefix(own), name.split(".<locals>")[0]))

    class MeasuredStep:
        """`Trainer.train_step`, which is measured until the next one."""

        def __get__(self, trainer, kind=None, function=Trainer.train_step):
            steps.append(1)
            sys.setprofile(profile if len(steps) == 5 else None)
            return function.__get__(trainer, kind)

    def read(*arguments, function=sample_dataset._read_part):
        reads.append(1)
        sys.setprofile(profile if len(reads) == 1 else None)  # of TensorFlow's thread
        try:
            return function(*arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(Trainer, "train_step", MeasuredStep())
    monkeypatch.setattr(sample_dataset, "_read_part", read)
    flags = (f"--dataset_path={tiny}", *TINY, "--batch_size=64", "--print_freq=1000")
    assert in_process(tmp_path, *flags)[0] == 0
    names = {(file, name) for file, name in entered if Path(file).parts[0] != "tests"}
    classes = {(file, name.split(".")[0]) for file, name in names if "." in name}
    counts = len({file for file, _ in names}), len(classes), len(names)
    assert all(count <= limit for count, limit in zip(counts, (14, 14, 36), strict=True)), names
