"""Tables and configuration for Triton's HPS backend, NVIDIA Merlin's hierarchical parameter server.

What it reads is described in github.com/triton-inference-server/hugectr_backend, folder
hps_backend: docs/architecture.md ("Embedding Table Input Format", "Lookup Request Format") and
docs/hierarchical_parameter_server.md; what is written there in pictures only follows from
src/hps.cc and src/model_instance_state.cpp:

- A table is a folder with two files without headers: `key`, int64, and `emb_vector`, float32
  [keys, columns], in the same order.
- A request has KEYS, int64: first all keys of the first table, then all of the second, and so on;
  and NUMKEYS, int32 [1, tables]: how many each table has.
- OUTPUT0 is flat: the vectors of all keys of the first table, then those of the second. So where a
  table's vectors begin depends on the batch, and rows come together in front of the dense part
  only (`deployment.triton.hps.dense`).
- Each request is computed by itself: the backend puts none together.
- A server reads one configuration, `--backend-config=hps,ps=ps.json`, with an entry for each model.
  So each model's folder has its entry, and the repository all of them in one file.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deployment.artifacts.table_files import append, blocks_of
from deployment.model.trained_model import Trained
from deployment.serving.hps_keys import keys_of_a_row
from deployment.serving.interface import Interface
from deployment.triton.config import VERSION, Instances
from runtime.files.atomic import write_errors_name

PS_FILE = "ps.json"  # of a repository
ENTRY_FILE = "ps_entry.json"  # of a model: its entry there

# NVIDIA's own deployment of DLRM (DeepLearningExamples, deployment/hps/deploy_sparse.py) fills
# tables up to 100 keys; nobody asks for those behind the last row.
_LEAST_KEYS = 100

# Buffers for look-ups, of which each copy of the model needs one.
_BUFFERS_PER_INSTANCE = 2


def write_tables(trained: Trained, tables: Sequence[tuple[str, int, int]], folder: Path) -> None:
    """Writes each table's keys and vectors, block by block, each block checked.

    The key of a row is its number. The key behind the last row is that of "no id here" and has
    zeros, as have those that fill a small table up.

    Args:
      trained: whose checkpoint it is.
      tables: (name, rows, columns) of each; table number i goes into `folder / table_folder(i)`.
      folder: where to; is there.

    Raises:
      DamagedCheckpoint: a file of the checkpoint is missing, cut or changed.
      OSError: a file cannot be written; it names the file.
    """
    for number, (name, rows, dim) in enumerate(tables):
        target = folder / table_folder(number)
        with write_errors_name(target):
            target.mkdir()
        more = max(1, _LEAST_KEYS - rows)
        key_file, vector_file = target / "key", target / "emb_vector"
        with open(key_file, "xb", buffering=0) as keys, open(vector_file, "xb", buffering=0) as out:
            for first_row, block in blocks_of(trained, name):
                numbers = np.arange(first_row, first_row + len(block), dtype=np.int64)
                append(keys, key_file, numbers)
                append(out, vector_file, block)
            append(keys, key_file, np.arange(rows, rows + more, dtype=np.int64))
            append(out, vector_file, np.zeros((more, dim), np.float32))


def table_folder(number: int) -> str:
    """Folder of a table; names of tables are free text."""
    return f"table_{number}"


def ps_entry(
    model: str, interface: Interface, tables_folder: str, instances: Instances, cache_share: float
) -> dict[str, Any]:
    """What HPS is told of a model.

    Args:
      model: name of the HPS model.
      interface: of the deployment.
      tables_folder: where `write_tables` wrote to, as the server sees it.
      instances: copies of the model, and their GPUs.
      cache_share: of each table's rows, that a GPU keeps, in (0, 1].
    """
    tables = interface.tables
    keys = keys_of_a_row(interface)
    return {
        "model": model,
        "sparse_files": [
            f"{tables_folder}/{table_folder(number)}" for number in range(len(tables))
        ],
        "embedding_table_names": [table_folder(number) for number in range(len(tables))],
        "embedding_vecsize_per_table": [table.dim for table in tables],
        "maxnum_catfeature_query_per_table_per_sample": [keys[t.name] for t in tables],
        # Of keys that no table has, which our checks let nobody ask for.
        "default_value_for_each_table": [0.0] * len(tables),
        "deployed_device_list": list(instances.gpus),
        "max_batch_size": interface.max_batch_size,
        "num_of_worker_buffer_in_pool": _BUFFERS_PER_INSTANCE * instances.count,
        "num_of_refresher_buffer_in_pool": 1,
        # Tables do not change while they are served.
        "cache_refresh_percentage_per_iteration": 0.0,
        # Where fewer keys than this share are in the cache, the others are waited for; else they
        # get the default value, a wrong answer without a word. 1: always waited.
        "hit_rate_threshold": 1.0,
        "gpucache": True,
        "gpucacheper": cache_share,
    }


def write_ps_entry(entry: dict[str, Any], model: Path) -> None:
    """Writes a model's entry into its folder.

    Raises:
      OSError: it cannot be written; it names the file.
    """
    _write_json(entry, model / ENTRY_FILE)


def read_ps_json(repository: Path) -> dict[str, Any] | None:
    """A repository's `ps.json`; None where there is none.

    Raises:
      ValueError: it is none.
      OSError: it cannot be read.
    """
    file = repository / PS_FILE
    try:
        content = json.loads(file.read_text())
        models = content["models"]
        if any(not isinstance(entry["model"], str) for entry in models):
            raise TypeError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f'{file} is not what HPS is started with, JSON with {{"models": [{{"model": NAME, '
            "...}, ...]}: models deployed here are added to it; mend it, or move it away"
        ) from None
    return content


def update_ps_json(repository: Path) -> None:
    """Brings the entries of the models that are in a repository into its `ps.json`.

    Entries that `ps_entry` made of models that are there no longer go. All else stays: what
    somebody wrote beside the models (`volatile_db`), or of models of another repository. The file
    appears in one rename, and deployments that end at the same time wait for each other.

    Raises:
      ValueError: the file that is there is none, see `read_ps_json`.
      OSError: it cannot be written; it names the file.
    """
    with _locked(repository):
        before = read_ps_json(repository)
        files = sorted(repository.glob(f"*/{ENTRY_FILE}"))
        if before is None and not files:
            return
        entries = [json.loads(file.read_text()) for file in files]
        names = {entry["model"] for entry in entries}
        content = before or {"supportlonglong": True, "models": []}  # keys are int64
        others = [
            entry
            for entry in content["models"]
            if entry["model"] not in names and not _is_ours(entry)
        ]
        after = {**content, "models": others + entries}
        if after != before:
            partial = repository / f".{PS_FILE}.partial"
            _write_json(after, partial)
            with write_errors_name(repository / PS_FILE):
                partial.replace(repository / PS_FILE)


def _is_ours(entry: dict[str, Any]) -> bool:
    """Whether an entry's tables are where `write_tables` writes them."""
    files, model = entry.get("sparse_files"), entry["model"]
    if not isinstance(files, list) or not files:
        return False
    return all(
        str(file).endswith(f"/{model}/{VERSION}/{table_folder(number)}")
        for number, file in enumerate(files)
    )


@contextlib.contextmanager
def _locked(repository: Path) -> Iterator[None]:
    """A block that one process at a time is in."""
    descriptor = os.open(repository, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_json(content: dict[str, Any], path: Path) -> None:
    with write_errors_name(path):
        path.write_text(json.dumps(content, indent=1) + "\n")


def backend_parameters(interface: Interface) -> dict[str, str]:
    """The parameters of the HPS model's configuration: sizes of the buffers of its copies."""
    keys = keys_of_a_row(interface)
    return {
        "slots": str(len(interface.lookups)),
        "cat_feature_num": str(sum(keys.values())),
        "embedding_vector_size": str(max(table.dim for table in interface.tables)),
    }
