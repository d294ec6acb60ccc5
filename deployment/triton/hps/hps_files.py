"""Tables and configuration for Triton's HPS backend, NVIDIA Merlin's hierarchical parameter server.

Its formats are described in github.com/triton-inference-server/hugectr_backend, folder hps_backend:
docs/architecture.md ("Embedding Table Input Format", "Lookup Request Format") and
docs/hierarchical_parameter_server.md; details that are only in pictures there follow from
src/hps.cc and src/model_instance_state.cpp:

- A table is a folder with two files without headers: `key`, int64, and `emb_vector`, float32
  [keys, columns], in the same order.
- A request has KEYS, int64: all keys of the first table, then all of the second, and so on; and
  NUMKEYS, int32 [1, tables]: the number of keys per table.
- OUTPUT0 is flat: the vectors of all keys of the first table, then those of the second. The offset
  of a table's vectors depends on the batch, so rows are assembled directly before the dense part
  (`deployment.triton.hps.hps_models`).
- Requests are computed one by one: the backend does not batch.
- A server reads one configuration, `--backend-config=hps,ps=ps.json`, with an entry per model. Each
  model's folder has its entry, and the repository has all of them in one file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deployment.artifacts.table_files import append, blocks_of
from deployment.model.trained_model import TrainedModel
from deployment.serving.hps_keys import keys_per_row
from deployment.serving.interface import Interface, ServedTable
from deployment.triton.config_pbtxt import Instances
from deployment.triton.repository import VERSION
from runtime.files.disk import FileLock
from runtime.files.outputs import output_file

PS_FILE = "ps.json"  # of a repository
ENTRY_FILE = "ps_entry.json"  # of a model: its entry in `ps.json`

# NVIDIA's own deployment of DLRM (DeepLearningExamples, deployment/hps/deploy_sparse.py) fills
# tables up to 100 keys; no request has the keys after the last row.
_MIN_KEYS = 100

# Lookup buffers; each copy of the model needs one.
_BUFFERS_PER_INSTANCE = 2


def write_tables(
    trained: TrainedModel,
    tables: Sequence[ServedTable],
    folder: Path,
    is_fused: bool = False,
) -> None:
    """Writes keys and vectors of each table into `table_folder(i)`, block by block, each verified.

    The key of a row is its number. The key after the last row means "no id" and has a vector of
    zeros, as have keys that fill a small table up. With `is_fused` all tables, of one width,
    are written as the one table of `hps_keys.fused`.

    Raises:
        DamagedCheckpoint: a file of the checkpoint is missing, truncated or changed.
    """
    for number, group in enumerate([tables] if is_fused else [[table] for table in tables]):
        target, start = folder / table_folder(number), 0
        target.mkdir()
        with (
            open(target / "key", "xb", buffering=0) as keys,
            open(target / "emb_vector", "xb", buffering=0) as vectors,
        ):
            for table in group:
                for first_row, block in blocks_of(trained, table.name):
                    first_key = start + first_row
                    append(keys, np.arange(first_key, first_key + len(block), dtype=np.int64))
                    append(vectors, block)
                start += table.rows
            num_zeros = max(1, _MIN_KEYS - start)
            append(keys, np.arange(start, start + num_zeros, dtype=np.int64))
            append(vectors, np.zeros((num_zeros, group[0].dim), np.float32))


def table_folder(number: int) -> str:
    """Returns the folder of a table; table names are free text."""
    return f"table_{number}"


def ps_entry(
    model: str, interface: Interface, tables_folder: str, instances: Instances, cache_share: float
) -> dict[str, Any]:
    """Returns the entry of a model in `ps.json`.

    The server sees the tables of `write_tables` in `tables_folder`. A GPU caches the share
    `cache_share`, in (0, 1], of each table's rows.
    """
    tables = interface.tables
    keys = keys_per_row(interface)
    folders = [table_folder(number) for number in range(len(tables))]
    return {
        "model": model,
        "sparse_files": [f"{tables_folder}/{folder}" for folder in folders],
        "embedding_table_names": folders,
        "embedding_vecsize_per_table": [table.dim for table in tables],
        "maxnum_catfeature_query_per_table_per_sample": [keys[t.name] for t in tables],
        # For keys outside of a table, which our checks refuse.
        "default_value_for_each_table": [0.0] * len(tables),
        "deployed_device_list": list(instances.gpus),
        "max_batch_size": interface.max_batch_size,
        "num_of_worker_buffer_in_pool": _BUFFERS_PER_INSTANCE * instances.count,
        "num_of_refresher_buffer_in_pool": 1,
        # Tables do not change while they are served.
        "cache_refresh_percentage_per_iteration": 0.0,
        # Below this share of cached keys HPS waits for the others; above it silently answers the
        # default value for them. 1: it always waits.
        "hit_rate_threshold": 1.0,
        "gpucache": True,
        "gpucacheper": cache_share,
    }


def read_ps_json(repository: Path) -> dict[str, Any] | None:
    """Returns a repository's `ps.json`, None without one; raises ValueError if it is invalid."""
    file = repository / PS_FILE
    try:
        content = json.loads(file.read_text())
        if any(not isinstance(entry["model"], str) for entry in content["models"]):
            raise TypeError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f'{file} is not a configuration of HPS, JSON with {{"models": [{{"model": NAME, '
            "...}, ...]}: models deployed here are added to it; fix it, or move it away"
        ) from None
    return content


def configuration(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the configuration of a server with the models of `ps_entry`."""
    return {"supportlonglong": True, "models": list(entries)}  # keys are int64


def update_ps_json(repository: Path) -> None:
    """Writes the entries of the models of a repository into its `ps.json`.

    Entries by `ps_entry` of models that no longer exist are removed. All else stays: settings of
    other kinds (`volatile_db`), and models of other repositories. Concurrent deployments wait for
    each other.
    """
    with FileLock(repository):
        before = read_ps_json(repository)
        files = sorted(repository.glob(f"*/{ENTRY_FILE}"))
        if before is None and not files:
            return
        entries = [json.loads(file.read_text()) for file in files]
        names = {entry["model"] for entry in entries}
        content = before or configuration([])
        others = [
            entry
            for entry in content["models"]
            if entry["model"] not in names and not _is_ours(entry)
        ]
        after = {**content, "models": others + entries}
        if after != before:
            write_json(after, repository / PS_FILE)


def _is_ours(entry: dict[str, Any]) -> bool:
    """Returns whether the entry names tables as `write_tables` writes them."""
    files, model = entry.get("sparse_files"), entry["model"]
    if not isinstance(files, list) or not files:
        return False
    return all(
        str(file).endswith(f"/{model}/{VERSION}/{table_folder(number)}")
        for number, file in enumerate(files)
    )


def write_json(content: dict[str, Any], path: Path) -> None:
    """Writes a file whole; raises OSError that names it."""
    with output_file(path) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode())
