"""Flags, feature spec, data sets and batch sizes are checked once per run."""

from collections import Counter

import pytest
from distributed_embeddings.collectives import World

from config import command_line
from config import config as flags
from config.flag import Rules
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline import sample_dataset
from dataloading.spec import yaml_io
from tests.recipes.test_entry_scripts import TINY, in_process


@pytest.fixture
def calls(monkeypatch):
    """The checks and openings of the runs in a test, and their numbers."""
    counter = Counter()

    def count(owner, function, key=lambda *arguments: None):
        wrapped = getattr(owner, function)

        def counted(*arguments, **options):
            counter[function, key(*arguments)] += 1
            return wrapped(*arguments, **options)

        monkeypatch.setattr(owner, function, counted)

    def counted_rule(rule):
        def check(values):
            counter["rule", rule.__name__] += 1
            rule(values)

        return check

    for owner, name in ((command_line, "RULES"), (flags, "COMPLETE_RULES")):
        monkeypatch.setattr(owner, name, tuple(map(counted_rule, getattr(owner, name))))
    count(Rules, "check_value", lambda rules, name, value: (name, value))
    count(Rules, "check_needs", lambda rules, name, values: name)
    count(yaml_io, "read_mapping", lambda path: path.name)
    count(StoredDataset, "__init__", lambda data, spec, split, size: split)
    count(sample_dataset, "check_shares", lambda size, rank, ranks: size)
    count(World, "check_agreement", lambda world, facts: any(key.startswith("--") for key in facts))
    return counter


def of(calls, name):
    return {key: number for (kind, key), number in calls.items() if kind == name}


def test_one_training(tiny, tmp_path, calls):
    data, batches = f"--dataset_path={tiny}", ("--batch_size=250", "--valid_batch_size=150")
    code, _ = in_process(tmp_path, data, *TINY, *batches)
    assert code == 0
    assert set(of(calls, "rule")) >= {rule.__name__ for rule in flags.RULES}
    for name in ("rule", "check_value", "check_needs"):
        assert set(of(calls, name).values()) == {1}, name
    assert of(calls, "read_mapping") == {"feature_spec.yaml": 1}
    assert of(calls, "__init__") == {"train": 1, "validation": 1}
    assert of(calls, "check_shares") == {250: 1, 150: 1}
    assert of(calls, "check_agreement")[True] == 1


def test_one_resumed_training(tiny, tmp_path, calls):
    """The flags that the checkpoint sets are checked when it is read."""
    command = (f"--dataset_path={tiny}", *TINY, f"--save_checkpoint_path={tmp_path / 'model'}")
    assert in_process(tmp_path / "first", *command, "--max_steps=2")[0] == 0
    calls.clear()
    code, _ = in_process(tmp_path / "second", *command, "--resume=auto", "--epochs=2")
    assert code == 0
    for name in ("rule", "check_needs"):
        assert set(of(calls, name).values()) == {1}, name
    assert of(calls, "read_mapping") == {"feature_spec.yaml": 1}
    assert of(calls, "__init__") == {"train": 1, "validation": 1}
    assert of(calls, "check_agreement")[True] == 1
