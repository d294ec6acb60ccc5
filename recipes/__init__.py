"""Recipes, and their Python API: `train`, `evaluate`, `predict`, `load_model`.

    import recipes

    result = recipes.train("dlrm", dataset_path="data/clicks", epochs=2)
    model = recipes.load_model(result.checkpoint)
    scores = model.predict({"city": ["Bern", "Oslo"], "price": [12.5, 8]})

The API is imported when it is first used: it is above the packages that import recipes.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recipes.api import evaluate, load_model, predict, train
    from recipes.execution import Result

__all__ = ["Result", "evaluate", "load_model", "predict", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'recipes' has no attribute {name!r}")
    return getattr(importlib.import_module("recipes.api"), name)
