"""Stand-in for Merlin's HPS, which reads the same files, written from the documentation alone.

Reads `ps.json`, `key` and `emb_vector` as hugectr_backend's hps_backend/docs/architecture.md
describes them, and takes requests apart as src/hps.cc and src/model_instance_state.cpp do.
"""

import json
from pathlib import Path

import numpy as np


class HpsStandIn:
    """The HPS backend with the tables of one model."""

    def __init__(self, ps_file: Path, model: str):
        config = json.loads(ps_file.read_text())
        assert config["supportlonglong"] is True
        (self.config,) = (entry for entry in config["models"] if entry["model"] == model)
        self.dims = self.config["embedding_vecsize_per_table"]
        self._default = self.config["default_value_for_each_table"]
        self._rows = []
        for folder, dim in zip(self.config["sparse_files"], self.dims, strict=True):
            keys = np.fromfile(Path(folder) / "key", np.int64)
            vectors = np.fromfile(Path(folder) / "emb_vector", np.float32)
            self._rows.append(dict(zip(keys.tolist(), vectors.reshape(-1, dim), strict=True)))

    def lookup(self, keys: np.ndarray, num_keys: np.ndarray) -> np.ndarray:
        """OUTPUT0 from KEYS and NUMKEYS."""
        assert keys.dtype == np.int64 and num_keys.dtype == np.int32
        assert num_keys.ndim == 2, "the second dimension counts the tables"
        flat, at, result = keys.reshape(-1).tolist(), 0, []
        most = self.config["maxnum_catfeature_query_per_table_per_sample"]
        for table in range(num_keys.shape[1]):
            count = int(num_keys[0, table])
            assert count <= most[table] * self.config["max_batch_size"], "fits the buffer"
            default = np.full(self.dims[table], self._default[table], np.float32)
            for key in flat[at : at + count]:
                result.append(self._rows[table].get(key, default))
            at += count
        assert at == len(flat), "each key is of a table"
        return np.concatenate(result)
