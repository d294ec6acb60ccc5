"""Command lines of NVIDIA's DLRM and DCNv2: names, spellings, and flags without effect."""

import re

import pytest

import main as entry
from config.command_line import flag_names, parse
from config.recipe_choice import recipe_of
from config.sections import original
from recipes.registry import BY_NAME

USE_SPEC = "synthetic_dataset_use_feature_spec"


def read(*flags, recipe="dlrm"):
    return parse(["x", "--dataset_path=data", "--preset=terabyte", *flags], BY_NAME[recipe])


def parsed_message(recipe, argument):
    try:
        parse(["x", argument], BY_NAME[recipe])
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.quick("ncf")
@pytest.mark.parametrize("recipe", BY_NAME)
def test_hyphens(recipe):
    """A flag and its spelling with hyphens are the same, as is the error of a wrong value."""
    names = flag_names(BY_NAME[recipe])
    names = sorted(n for n in names if "_" in n and n.removeprefix("no") not in names - {n})
    assert len(names) > 50
    for name in names[::9]:  # all take the same way
        hyphens = parsed_message(recipe, f"--{name.replace('_', '-')}=x-y_z")
        assert "Unknown command line flag" not in hyphens, name
        assert hyphens == parsed_message(recipe, f"--{name}=x-y_z"), name
    config = read("--batch-size=8", "-valid-batch_size", "4", "--run-dir=a-b", recipe=recipe)
    assert (config.run.batch_size, config.run.valid_batch_size) == (8, 4)
    assert config.logs.run_dir == "a-b"
    assert parsed_message(recipe, "--batch-sice=8").startswith(
        "Unknown command line flag 'batch_sice'. Did you mean: batch_size"
    )


@pytest.mark.parametrize(
    ("flags", "name", "reason"),
    [
        ("--beta1=0.8", "beta1", "with --optimizer or --embedding_optimizer adam"),
        ("--beta2=0.8", "beta2", "with --optimizer or --embedding_optimizer adam"),
        ("--num_cross_layers=2", "num_cross_layers", "with --interaction cross"),
        ("--cross_layer_projection_dim=2", "cross_layer_projection_dim", "with --interaction c"),
        ("--loss_scale=1024", "loss_scale", "with --amp"),
        ("--profiled_rank=1", "profiled_rank", "with --profiler_start_step"),
        ("--dataset_type=synthetic", "dataset_path", "with --dataset_type tf_raw, split_tfrec"),
        ("--synthetic_dataset_hotness=2", "synthetic_dataset_hotness", "with --dataset_type s"),
        (f"--{USE_SPEC}", USE_SPEC, "with --dataset_type synthetic"),
        ("--xla --run_eagerly", "xla", "without --run_eagerly"),
        ("--log_path=a --log_filename=b", "log_filename", "without --log_path"),
    ],
)
def test_flags_without_effect(flags, name, reason):
    (unused,) = read(*flags.split()).unused()
    assert unused.startswith(f"{name} (read {reason}")
    adam = ("--optimizer=adam", "--beta1=0.8", "--interaction=cross", "--num_cross_layers=2")
    assert read(*adam, "--amp", "--loss_scale=8").unused() == []


@pytest.mark.parametrize("recipe", ["dlrm", "dcnv2"])
def test_flags_of_earlier_releases(recipe):
    assert not read(recipe=recipe).distribution.model_parallel_input
    assert not read("--data_parallel_input", recipe=recipe).distribution.model_parallel_input
    by_table = read("--nodata_parallel_input", recipe=recipe)
    assert by_table.distribution.model_parallel_input
    assert "model_parallel_input" in by_table.explicit
    for word, ours in (("custom_cuda", "dot"), ("tensorflow", "dot_tensorflow"), ("dummy", "dot")):
        assert read(f"--dot_interaction={word}", recipe=recipe).family_flags.interaction == ours
    assert read("--fp16", recipe=recipe).device.amp
    assert list(original.notes(read("--use_mde_embeddings", "--use_mde_embeddings"))) == []
    assert list(original.notes(read("--use_merlin_de_embeddings", recipe=recipe))) == []
    (note,) = original.notes(read("--nouse_mde_embeddings", recipe=recipe))
    assert note.startswith("--nouse_mde_embeddings has no effect")
    (note,) = original.notes(read("--dot_interaction=dummy", recipe=recipe))
    assert note.startswith("--dot_interaction dummy has no effect")
    (note,) = original.notes(read("--concat_embedding", recipe=recipe))
    assert note.startswith("--concat_embedding has no effect")


def test_saved_model_flags():
    saved = read("--saved_model_output_path=there/", "--keep_best")
    assert saved.checkpoint.save_checkpoint_path is None and saved.unused() == []
    deployed = ("--mode=deploy", "--restore_checkpoint_path=a", "--saved_model_output_path=b")
    config = read(*deployed, "--fp16", "--save_input_signature")
    assert config.checkpoint.save_checkpoint_path is None and not config.device.amp
    for mode in ("eval", "inference"):
        assert read(f"--mode={mode}", "--saved_model_input_path=b").unused() == ["preset"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--mode=deploy", "--restore_checkpoint_path is missing"),
        ("--mode=deploy --restore_checkpoint_path=a", "--saved_model_output_path is missing"),
        ("--saved_model_input_path=a", "a SavedModel cannot be trained"),
        ("--mode=eval --saved_model_input_path=a --restore_checkpoint_path=b", "both name a model"),
        ("--dummy_model --saved_model_output_path=a", "--dummy_model reads no ids"),
        ("--data_parallel_input --model_parallel_input", "are opposites"),
        ("--dot_interaction=tensorflow --interaction=dot", "are aliases"),
        ("--dot_interaction=cuda", "dot_interaction=cuda: .*custom_cuda"),
        ("--print_freq=0.5", "print_freq"),  # a float there, a whole number of steps here
    ],
)
def test_invalid_flags(flags, message):
    with pytest.raises(ValueError, match=message):
        read(*flags.split())
    if "--mode=deploy" in flags:
        with pytest.raises(ValueError, match="deployment.export"):
            read(*flags.split(), recipe="sim")


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        ("--dataset_path D --amp --xla", "dlrm"),
        ("--dataset_path D --interaction cross --num_cross_layers 3", "dlrm"),
        ("--dataset_dir D --mode train --model_type sim --embedding_dim 16 --amp", "sim"),
        ("--dataset-dir D --global_batch_size 4 --nodrop_remainder", "sim"),
        ("--data D --epochs 5", "ncf"),
        ("--data D --mode test --checkpoint-path model.pth", "ncf"),
        ("--model dcnv2 --dataset_path D", "dcnv2"),
        ("--dataset_path D --model=sim", "sim"),
        ("--dataset_path D --model ncf -e 3", "ncf"),
        ("", "dlrm"),
    ],
)
def test_recipe_of_main(line, recipe):
    chosen, rest = recipe_of(["main.py", *line.split()], BY_NAME)
    assert chosen == recipe
    assert rest == ["main.py", *re.sub(r"--model[ =]\w+", "", line).split()]


@pytest.mark.parametrize("name", ["tiny", ""])
def test_unknown_model(name, capsys):
    assert entry.main(["main.py", "--model", name]) == entry.USER_ERROR
    error = capsys.readouterr().err
    assert error.startswith("main: error: --model: ") and error.endswith(f"got '{name}'\n")


@pytest.mark.parametrize("recipe", BY_NAME)
def test_main_starts_the_recipe(recipe, capsys):
    """The error of a recipe begins with its name."""
    flags = ("--dataset_path=/no such folder", "--plan_only")
    assert entry.main(["main.py", "--model", recipe, *flags]) == entry.USER_ERROR
    assert capsys.readouterr().err.startswith(f"{recipe}: error: ")


def test_help(capsys):
    assert entry.main(["main.py", "--helpfull"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("python main.py --model dlrm|dcnv2|sim|ncf; flags of dlrm:\n")
    assert "--use_mde_embeddings, --use_merlin_de_embeddings" in text


# Flags whose defaults differ, see docs/explanation/differences.md: values that the original takes.
OTHER_DEFAULTS = {
    "dist_strategy": "memory_balanced",
    "column_slice_threshold": "5000000000",
    "row_slice_threshold": "10000000000",
    "cpu_offloading_threshold_gb": "75",
    "auc_thresholds": "8000",
    "profiled_rank": "1",
    "log_path": "dlrm_tf_log.json",
    "data_parallel_input": "true",
    "interaction": "dot_custom_cuda",
    "synthetic_dataset_hotness": ",".join(["20"] * 26),
}


@pytest.mark.parametrize("recipe", ["dlrm", "dcnv2"])
def test_published_flags(recipe):
    """Spellings of values; the defaults are in docs/reference/flags.md."""
    assert read("--print_freq=1000.0", recipe=recipe).logs.print_freq == 1000
    changed = [f"--{name}={value}" for name, value in OTHER_DEFAULTS.items()]
    config = read(*changed, recipe=recipe)
    assert config.explicit >= set(OTHER_DEFAULTS)
    assert all(not unused.startswith("interaction") for unused in config.unused())
    switches = ("run_eagerly", "tfdata_debug", "embedding_trainable", "amp", "use_mde_embeddings")
    switches += ("embedding_zeros_initializer", "concat_embedding", "cpu", "xla", USE_SPEC)
    on = read(*(f"--{name}=1" for name in switches), recipe=recipe).flat()
    off = read(*(f"--no{name}" for name in switches), recipe=recipe).flat()
    assert all(on[name] and not off[name] for name in switches)
