"""Models with drawn weights as checkpoints: all kinds that can be served, in less than training."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from config.command_line import parse
from dataloading.formats.sequence_tfrecord.writer import sequence_spec
from dataloading.pipeline.batch import Inputs, InteractionInputs, SequenceInputs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import synthetic_spec
from deployment.model.trained_model import TrainedModel
from deployment.serving.interface import Interface
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.ncf.model import NCFModel
from nn.ncf.sizes import NCFConfig
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import SequenceModelConfig
from recipes.registry import DCNV2, DLRM, NCF, SIM
from runtime import checkpoint
from tests.runtime.checkpoint.array_weights import save_on_ranks

CARDINALITIES, HOTNESS = (5, 40, 9), (1, 3, 1)
ITEMS, CATEGORIES, LENGTH = 30, 4, 7

COMMAND_LINE = ["prog", "--dataset_path=nowhere"]

PARTS = {"num_bins": 3, "is_wide": True, "dropout_rate": 0.5}

RANKING = {
    "dlrm": {},
    "dlrm_without_numericals": {"num_numerical": 0},
    "dlrm_of_one_table": {"tables": 1},
    "dlrm_without_tables": {"tables": 0},
    "dlrm_of_all_parts": PARTS,
    "dcnv2": {"interaction": "cross", "embedding_dims": (4, 8, 16)},
    "dcnv2_without_numericals": {"interaction": "cross", "num_numerical": 0},
    "dcnv2_of_all_parts": {"interaction": "cross", "embedding_dims": (4, 8, 16), **PARTS},
}
SEQUENCE = {
    "sim": {"model_type": "sim"},
    "sim_of_hard_search": {"model_type": "sim", "gsu": "hard"},
    "sim_of_nvidia": {"model_type": "sim", "variant": "nvidia"},
    "sim_without_user": {"model_type": "sim", "user_features": (), "user_cardinalities": ()},
    "dien": {"model_type": "dien"},
    "din": {"model_type": "din"},
    "din_of_units": {"model_type": "din", "attention": "unit"},
    "no_history": {"model_type": "no_history"},
}
INTERACTION = {name: {"model_type": name} for name in ("neumf", "gmf", "mlp")}


def make(name: str, folder: Path):
    """(model, `TrainedModel`) of one of the names above; its checkpoint is below `folder`."""
    if name in RANKING:
        return ranking(folder, **RANKING[name])
    if name in SEQUENCE:
        return sequence(folder, **SEQUENCE[name])
    return interaction(folder, **INTERACTION[name])


def ranking(folder: Path, tables=3, num_numerical=2, **sizes):
    """DLRM, or DCNv2 with `interaction="cross"`."""
    spec = synthetic_spec(CARDINALITIES[:tables], HOTNESS[:tables] or 1, 1.1, num_numerical)
    shape = CTRConfig(
        feature_names=spec.channel("categorical"),
        cardinalities=CARDINALITIES[:tables],
        num_numerical=num_numerical,
        **{
            "embedding_dims": (8,) * tables,
            "bottom_mlp_dims": (6, 8) * bool(num_numerical),
            "top_mlp_dims": (12, 1),
            "num_cross_layers": 2,
            "cross_layer_projection_dim": 5,
            **sizes,
        },
    )
    cross = shape.interaction == "cross"
    config = parse(COMMAND_LINE, DCNV2 if cross else DLRM)
    edges = [[-1, 0, 0.5, 2], [0, 1]] if shape.num_bins else None
    return _saved(folder, CTRModel(shape, edges=edges), config, spec, shape)


def sequence(folder: Path, length=LENGTH, **sizes):
    """SIM and the other models with histories."""
    spec = sequence_spec(
        label="label",
        user={"user": 6},
        target={"item": ITEMS, "category": CATEGORIES},
        positive=("past_item", "past_category"),
        negative=("other_item", "other_category"),
        history_length=length,
        prebatch_sizes={"train": 0},
    )
    shape = SequenceModelConfig(
        **{
            "user_features": ("user",),
            "user_cardinalities": (6,),
            "embedding_dim": 4,
            "item_features": ("item", "category"),
            "long_seq_length": 4,
            "top_k": 2,
            "item_cardinalities": (ITEMS, CATEGORIES),
            "history_length": length,
            "stage_one_mlp_dims": (5,),
            "stage_two_mlp_dims": (6, 3),
            "aux_mlp_dims": (3,),
            **sizes,
        }
    )
    config = parse(COMMAND_LINE, SIM)
    return _saved(folder, SequenceModel(shape), config, spec, shape)


def interaction(folder: Path, **sizes):
    """NeuMF and the other models of interactions."""
    content = {
        "feature_spec": {
            "user": {"dtype": "int32", "cardinality": 11},
            "item": {"dtype": "int32", "cardinality": 13},
        },
        "source_spec": {},
        "channel_spec": {"user": ["user"], "item": ["item"]},
    }
    shape = NCFConfig(num_users=11, num_items=13, factors=4, layers=(8, 6, 5), **sizes)
    config = parse(COMMAND_LINE, NCF)
    spec = FeatureSpec.from_dict(content, folder)
    return _saved(folder, NCFModel(shape), config, spec, shape)


def _saved(folder: Path, model, config, spec, shape):
    rng = np.random.default_rng(1)
    for variable in [*model.dense_variables, *model.embedding.variables]:
        variable.assign(rng.normal(scale=0.4, size=variable.shape))
    path = save_on_ranks(folder / "checkpoint", 1, lambda rank: model.weights_to_save())
    return model, TrainedModel(path, checkpoint.describe(path), config, spec, shape)


def scores(model, interface: Interface, arrays) -> np.ndarray:
    """Scores of the whole model for a request, with its own lookups, float32 [rows, 1]."""
    columns = {name: tf.constant(values) for name, values in arrays.items()}
    if isinstance(model, CTRModel):
        ids = tuple(
            columns[f.input][:, f.start : f.start + f.count]
            for f in interface.features
            if f.cardinality is not None
        )
        inputs = Inputs(columns.get("numerical_features"), ids)
    elif isinstance(model, SequenceModel):
        user, history = (columns.get(name) for name in ("user_features", "positive_history"))
        inputs = SequenceInputs(
            () if user is None else (user,),
            tuple(tf.split(columns["target_features"], 2, axis=1)),
            () if history is None else tuple(tf.unstack(history, axis=1)),
            (),
        )
    else:
        inputs = InteractionInputs(columns["user"][:, 0], columns["item"][:, 0])
    return tf.sigmoid(model(inputs)).numpy()
