"""Recipes, and their Python API: `train`, `evaluate`, `predict`, `load_model`.

    import recipes

    result = recipes.train("dlrm", dataset_path="data/clicks", epochs=2)
    model = recipes.load_model(result.checkpoint)
    scores = model.predict({"city": ["Bern", "Oslo"], "price": [12.5, 8]})

The other names are the parts of a recipe of your own (docs/how_to/add_a_model.md). Each name is
imported when it is first used: the API is above the packages that import recipes, and models need
TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recipes.api import evaluate, load_model, predict, train
    from recipes.run_results import Result

__all__ = ["Result", "evaluate", "load_model", "predict", "train"]

_MODULES = {
    **dict.fromkeys(("evaluate", "load_model", "predict", "train"), "recipes.api"),
    "Result": "recipes.run_results",
    "Definition": "config.family",
    "Recipe": "recipes.recipe",
    **dict.fromkeys(("DLRM", "DCNV2", "SIM", "NCF"), "recipes.registry"),
    "RANKING": "recipes.ranking.family",
    "Metric": "nn.metrics.metric",
    "EmbeddingModel": "nn.embedding_model",
    "MLP": "nn.layers.fully_connected",
    "TableUniform": "distributed_embeddings.layers.weights",
    "ClickEvaluator": "nn.metrics.evaluator",
    "click_loss": "nn.train.losses",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'recipes' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
