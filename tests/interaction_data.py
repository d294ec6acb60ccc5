"""Small data sets of users and items on disk."""

from pathlib import Path

import numpy as np

from dataloading.spec.feature_spec import FeatureSpec

CHANNELS = {"user": ["user"], "item": ["item"], "label": ["label"]}


def write_interactions(
    folder: Path,
    num_users: int,
    num_items: int,
    splits: dict[str, dict[str, list]],
    metadata: dict | None = None,
    dtype: str = "int32",
) -> FeatureSpec:
    """A data set whose spec calls itself `f.yaml`.

    Args:
        splits: name -> feature (`user`, `item`, optionally `label`) -> values.
        dtype: of the ids.
    """
    dtypes = {"user": np.dtype(dtype), "item": np.dtype(dtype), "label": np.dtype("u1")}
    sources = {}
    for split, columns in splits.items():
        sources[split] = []
        (folder / split).mkdir(parents=True, exist_ok=True)
        for feature, values in columns.items():
            file = f"{split}/{feature}_0.bin"
            np.asarray(values, dtypes[feature]).tofile(folder / file)
            chunk = {"type": "split_binary", "features": [feature], "files": [file]}
            sources[split].append(chunk)
    content = {
        "feature_spec": {
            "user": {"dtype": dtype, "cardinality": num_users},
            "item": {"dtype": dtype, "cardinality": num_items},
            "label": {"dtype": "bool"},
        },
        "source_spec": sources,
        "channel_spec": CHANNELS,
        "metadata": metadata or {},
    }
    return FeatureSpec.from_dict(content, folder, origin="f.yaml")
