import dataclasses
import re

import pytest

from config.checkpoint_flags import resume_flags
from config.command_line import parse
from config.config import Config, fields_of, flags_with
from config.family import Definition
from config.flag import FIXED, OWN, rules_of
from config.help import WIDTH, usage
from config.sections.model import parse_embedding_dims
from recipes.preset_choice import with_preset
from recipes.ranking.family import RANKING
from recipes.registry import BY_NAME, DCNV2, DLRM, NCF, SIM
from recipes.sequential.family import SEQUENTIAL
from runtime.checkpoint import Index

PATH = "--dataset_path=data"


def read(*flags, definition=DLRM):
    return parse(["dlrm.py", PATH, *flags], definition)


def read_sim(*flags):
    return parse(["sim.py", PATH, *flags], SIM)


def read_ncf(*flags):
    return parse(["ncf.py", PATH, *flags], NCF)


def test_explicit_values():
    config = read("--batch_size", "128", "--top_mlp_dims=8,1", "--noshuffle", "--amp=true")
    assert config.run.batch_size == 128
    assert config.family_flags.top_mlp_dims == (8, 1)
    assert not config.data.shuffle and config.device.amp
    assert {"batch_size", "top_mlp_dims", "shuffle", "amp", "dataset_path"} == config.explicit


def test_recipe_defaults():
    config = read("--learning_rate=3", definition=DCNV2)
    assert config.optimizer.optimizer == "adam"
    assert config.family_flags.interaction == "cross"
    assert config.optimizer.learning_rate == 3
    with pytest.raises(ValueError, match="flags that do not exist: learningrate"):
        read(definition=Definition("wide_deep", RANKING, {"learningrate": 1}))


def test_aliases():
    config = parse(
        ["sim.py", "--dataset_dir=d", "--lr", "0.5", "-global_batch_size=8", "--results_dir=r"], SIM
    )
    assert (config.data.dataset_path, config.optimizer.learning_rate) == ("d", 0.5)
    assert (config.run.batch_size, config.run.valid_batch_size, config.logs.run_dir) == (8, 8, "r")
    assert {"dataset_path", "learning_rate", "batch_size", "run_dir"} == config.explicit
    assert read_sim("--batch_size=8", "--valid_batch_size=4").run.valid_batch_size == 4
    assert "--learning_rate, --lr " in usage(SIM)
    assert {target.partition("=")[0] for target in SIM.aliases.values()} <= set(config.flat())
    for word in ("single", "single_unique"):
        assert read_sim(f"--affinity={word}").device.affinity == f"socket_{word}"


# The first flag of each command line is the one that the message names.
INVALID_FLAGS = (
    *("--batchsize=3", "--batch_size=many", "--batch_size=0", "--max_steps=0", "--mode=fly"),
    "--model_type=sim",
    *("--learning_rate=-1", "--learning_rate=nan", "--decay_power=0", "--beta2=1 --optimizer=adam"),
    *("--top_mlp_dims=8,x,1", "--top_mlp_dims=8,2", "--top_mlp_dims=", "--bottom_mlp_dims=8,0"),
    *("--dataset_path=", "--mode=eval", "--plan_ranks_per_machine=4"),
    *("--plan_ranks_per_machine=0 --plan_only", "--shuffle_window_rows=100"),
    *("--auc_threshold=1.5", "--auc_threshold=0.8 --evals_per_epoch=0"),
    *("--loss_scale=0.5 --amp", "--loss_scale=high --amp"),
)
INVALID_SIM_FLAGS = (
    *("--lr=1 --learning_rate=2", "--dropout_rate=1", "--dropout_rate=-0.5", "--mode=eval"),
    *("--benchmark --mode=eval --load_checkpoint_path=c", "--benchmark --save_checkpoint_path=c"),
    *("--benchmark --max_steps=3", "--gsu=hard --model_type=din", "--din_attention=unit"),
    *("--dataset_path=", "--interaction=dot"),
)
INVALID_NCF_FLAGS = (
    *("--layers 7 8", "--layers 8", "--dropout=1", "--threshold=0", "--model_type=sim"),
    *("--threshold=0.5 --evals_per_epoch=0", "--alpha=2 --pretrained_gmf=a --pretrained_mlp=b"),
    "--pretrained_gmf=a --pretrained_mlp=b --resume=c",
    "--pretrained_gmf=a --pretrained_mlp=b --load_checkpoint_path=c",
    *("--alpha=0.3", "--dropout=0 --model_type=gmf", "--factors=8 --model_type=mlp"),
    *("--opt_level=O2 --amp", "--checkpoint_dir=a --save_checkpoint_path=b", "--keep_best"),
    *("--b=8 --batch_size=8", "--keep_best --save_checkpoint_path=a --evals_per_epoch=0"),
    *("--early_stopping=2 --evals_per_epoch=0", "--early_stopping=0", "--shuffle"),
)


INVALID = {read: INVALID_FLAGS, read_sim: INVALID_SIM_FLAGS, read_ncf: INVALID_NCF_FLAGS}


@pytest.mark.parametrize(
    ("read_recipe", "command"),
    [(function, command) for function, commands in INVALID.items() for command in commands],
)
def test_invalid_flags(read_recipe, command):
    with pytest.raises(ValueError, match=re.match(r"--(\w+)", command)[1]):
        read_recipe(*command.split())


@pytest.mark.parametrize(
    ("read_recipe", "flags", "name"),
    [
        (read, "--top_mlp_dims 8, 1", "'1'"),
        (read, "--dataset_path=", "--dataset_type synthetic"),
        (read, "--mode=eval", "--restore_checkpoint_path"),
        (read_ncf, "--plan_only --checkpoint_dir=a", "without --plan_only"),
        (read_ncf, "--pretrained_gmf=a", "--pretrained_mlp is missing"),
        (read_ncf, "--pretrained_mlp=a", "--pretrained_gmf is missing"),
        (read, "--resume=auto", "--save_checkpoint_path"),
        (read, "--resume=a --restore_checkpoint_path=b", "pass only one of them"),
        (read, "--checkpoint_every=5", "only read with --save_checkpoint_path"),
        (read, "--checkpoint_every_minutes=0 --resume=a", "--checkpoint_every_minutes: expected"),
        (read, "--mode=predict --restore_checkpoint_path=a", "needs a file for the scores"),
        (read, "--predictions_path=a.npy", "only read with --mode predict"),
    ],
)
def test_other_flags_in_messages(read_recipe, flags, name):
    """The flag that is missing, or the one that excludes another."""
    with pytest.raises(ValueError, match=name):
        read_recipe(*flags.split())


@pytest.mark.parametrize(
    "config", [read("--weight_decay=0.1"), read_sim("--variant=nvidia", "--weight_decay=1")]
)
def test_weight_decay_and_rate(config):
    with pytest.raises(ValueError, match="--weight_decay"):
        config.family.check_weight_decay(config)


def test_weight_decay_of_an_evaluation():
    """It has no effect: the flags of a training whose preset set the rate are accepted."""
    flags = ("--mode=eval", "--restore_checkpoint_path=c", "--weight_decay=1")
    with_preset(read(*flags), None, Index({}, {}, {}, {}))


def test_dataset_path_of_synthetic_data():
    assert parse(["x", "--dataset_type=synthetic"], DLRM).data.dataset_path is None
    with pytest.raises(ValueError, match="--dataset_path is missing"):
        parse(["x", "--dataset_type=synthetic", "--synthetic_dataset_use_feature_spec"], DLRM)


def test_names_in_needs():
    flags = {*read().flat(), *read_sim().flat(), *read_ncf().flat()}
    for recipe in (DLRM, SIM, NCF):
        for _, field in fields_of(recipe.family):
            for need in (*rules_of(field).needs, *rules_of(field).used_with):
                assert {
                    name.removeprefix("--") for name in re.findall(r"--\w+", need.text)
                } <= flags
                need.holds(Config(recipe))


def test_unused_flags_in_eval_mode():
    training = ["--optimizer=adam", "--batch_size=8", "--save_checkpoint_path=b", "--max_steps=3"]
    config = read(*training, "--restore_checkpoint_path=a", "--mode=eval")
    assert config.unused() == [*("batch_size", "max_steps", "optimizer", "save_checkpoint_path")]
    assert read(*training).unused() == []


def test_short_names_and_spaced_lists():
    config = read_ncf(
        *("-e", "3", "-b", "64", "-f=8", "--layers", "16", "8", "4", "-n", "2", "-l", "0.1"),
        *("-k", "5", "-s", "7", "-t", "0.5", "-b1", "0.8", "-b2", "0.9", "--eps=1e-3"),
        *("--mode", "test", "--checkpoint-path", "x", "--opt_level=O2"),
    )
    flat = config.flat()
    expected = {"epochs": 3, "batch_size": 64, "factors": 8, "layers": (16, 8, 4)}
    expected |= {"negative_samples": 2, "learning_rate": 0.1, "topk": 5, "seed": 7}
    expected |= {"threshold": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3, "mode": "eval"}
    expected |= {"restore_checkpoint_path": "x", "amp": True}
    assert {name: flat[name] for name in expected} == expected
    assert read_ncf("--mode=test", "--load_checkpoint_path=x").run.mode == "eval"
    assert read_ncf("--layers=8,4").family_flags.layers == (8, 4)
    full = usage(NCF, full=True)
    assert "test is an alias of eval" in full


def test_checkpoint_dir(tmp_path):
    config = read_ncf(f"--checkpoint_dir={tmp_path}", "--nokeep_best")
    assert config.checkpoint.keep_best is False
    config = read_ncf(f"--checkpoint_dir={tmp_path}")
    assert config.checkpoint.keep_best is True
    assert config.checkpoint.save_checkpoint_path == str(tmp_path)
    assert "save_checkpoint_path" in config.explicit
    saved = {"recipe": "ncf", "model_flags": {}, "flags": {"keep_best": None, "seed": 3}}
    adopted, changed = resume_flags(config, saved, "ck")
    assert adopted["seed"] == 3 and "keep_best" not in adopted and changed == ["keep_best"]
    config = read_ncf(f"--checkpoint_dir={tmp_path}", "--evals_per_epoch=0")
    assert config.checkpoint.keep_best is None
    config = read_ncf(f"--checkpoint_dir={tmp_path}", "--mode=test")
    assert config.checkpoint.restore_checkpoint_path == str(tmp_path)
    (tmp_path / "00001-step-5").mkdir()
    (tmp_path / "best").symlink_to("00001-step-5")
    config = read_ncf(f"--checkpoint_dir={tmp_path}", "--mode=test")
    assert config.checkpoint.restore_checkpoint_path == str(tmp_path / "best")
    defaults = {**NCF.defaults, "checkpoint_dir": str(tmp_path)}
    with_default = dataclasses.replace(NCF, defaults=defaults)
    own = parse(["x", PATH, "--save_checkpoint_path=own"], with_default)
    assert own.checkpoint.save_checkpoint_path == "own"
    assert own.family_flags.checkpoint_dir is None
    resumed = parse(["x", PATH, "--resume=there"], with_default)
    assert resumed.checkpoint.save_checkpoint_path is None


def test_unused_ncf_flags():
    ignored = ["--evals_per_epoch=0", "-k=5", "--valid_negative=7"]
    assert read_ncf(*ignored).unused() == ["topk", "valid_negative"]
    load = ["--mode=test", "--load_checkpoint_path=x", "-t=0.9", "-k=5", "-n=3"]
    load += ["--early_stopping=3"]
    expected = ["early_stopping", "negative_samples", "threshold"]
    assert read_ncf(*load).unused() == expected


def test_unused_sim_flags():
    load = ("--mode=eval", "--load_checkpoint_path=a", "--global_batch_size=8")
    assert read_sim(*load).unused() == []
    assert read_sim(*load, "--valid_batch_size=4").unused() == ["batch_size"]
    sizes = ("--prebatch_train_size=2", "--prebatch_test_size=3")
    assert read_sim(*load, *sizes).unused() == ["prebatch_train_size"]
    on_train = (*load, *sizes, "--eval_mapping=train")
    assert read_sim(*on_train).unused() == ["prebatch_test_size"]
    ignored = ("--epochs=7", "--evals_per_epoch=3", "--auc_thresholds=9", "--prefetch_test_size=3")
    assert read_sim("--benchmark", *ignored).unused() == sorted(
        flag[2:].split("=")[0] for flag in ignored
    )
    assert read_sim("--mode=inference", "--auc_thresholds=9").unused() == ["auc_thresholds"]


def test_replace():
    with pytest.raises(ValueError, match="must end with 1"):
        read().replace(top_mlp_dims=(3,))
    assert read().replace(seed=5, epochs=2).run.seed == 5


@pytest.mark.parametrize("recipe", BY_NAME)
def test_flags_of_help(recipe):
    """`--help` has those that most runs need, `--helpfull` all."""
    short, full = (usage(BY_NAME[recipe], full).splitlines() for full in (False, True))
    names = [
        [line.split()[0].strip("-,") for line in lines if line.startswith("  --")]
        for lines in (short, full)
    ]
    assert "dataset_path" in names[0] and 14 <= len(names[0]) <= 17
    assert names[1] == [field.name for _, field in fields_of(BY_NAME[recipe].family)]
    assert max(map(len, [*short, *full])) <= WIDTH


def test_values_in_help():
    """The presets have them, or the flags of a data set."""
    text = " ".join(usage(DCNV2, full=True).split())
    choices = "optimizer of the dense weights (sgd, adagrad, adam, lazy_adam; "
    assert f"{choices}small: adam; terabyte: adam)" in text
    assert "passes over the training samples (here: 7)" in usage(DCNV2, config=read("--epochs=7"))


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("16", (16, 16, 16)),
        ("4,8,16", (4, 8, 16)),
        ("4, 8, 16", (4, 8, 16)),
        ("wide", "must be an integer, a list .* or a JSON file.*'wide'"),
        ("1,2", "lists 2 sizes, the data set has 3"),
        ("0", "--embedding_dim must be at least 1"),
    ],
)
def test_embedding_dims(text, dims):
    if isinstance(dims, tuple):
        assert parse_embedding_dims(text, 3) == dims
    else:
        with pytest.raises(ValueError, match=dims):
            parse_embedding_dims(text, 3)


def test_embedding_dims_file(tmp_path, monkeypatch):
    """A number or a list is one, also where a file has that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dims.json").write_text("[1, 2, 3]")
    (tmp_path / "128").write_text("64")
    for text, dims in {"dims.json": "1,2,3", "128": "128", "16,32": "16,32"}.items():
        assert read(f"--embedding_dim={text}").model.embedding_dim == dims
    (tmp_path / "dims.json").write_text("[1, 2")
    (tmp_path / "wide").mkdir()
    for name, message in (("dims.json", "not a JSON file"), ("wide", "--embedding_dim wide: ")):
        with pytest.raises(ValueError, match=message):
            read(f"--embedding_dim={name}")


def test_recipe_with_the_flags_of_another():
    wide_deep = Definition("wide_deep", RANKING)
    config = parse(["prog", PATH], wide_deep)
    assert config.recipe == "wide_deep"
    assert config.flat() == read().flat()
    with pytest.raises(ValueError, match="with --dataset_type synthetic"):
        parse(["prog"], wide_deep)
    sequential = parse(["prog", PATH, "--mode=inference"], Definition("gru4rec", SEQUENTIAL))
    assert sequential.run.mode == "inference"


@pytest.mark.parametrize("family", [RANKING, SEQUENTIAL, NCF.family])
def test_model_flags_of_an_own_model(family):
    definition = Definition("own", family, build_model=lambda *_: None, model_flags=("variant",))
    assert Config(definition).model_flags == {"variant": "paper"}
    assert "variant" not in Config(NCF).model_flags and "variant" in Config(SIM).model_flags


def test_resumed_values_of_flags():
    """Each flag has one rule for a resumed training, also if two sections define it."""
    own, fixed = (flags_with(RANKING, resume=rule) for rule in (OWN, FIXED))
    local = flags_with(RANKING, is_local=True)
    assert not own & fixed
    assert {"mode", "resume", "run_dir", "plan_world_size", "profiled_rank"} <= own
    assert {"batch_size", "seed", "optimizer", "synthetic_dataset_alpha"} <= fixed
    assert not {"epochs", "learning_rate", "synthetic_dataset_valid_batches"} & (own | fixed)
    assert "dataset_path" in local and not {"batch_size", "seed"} & local
    rules = {}
    for field in (f for recipe in BY_NAME.values() for _, f in fields_of(recipe.family)):
        rule = rules_of(field)
        own_rule = (rule.resume, rule.is_local)
        assert rules.setdefault(field.name, own_rule) == own_rule, field.name
