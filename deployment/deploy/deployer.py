"""Builds the models of a checkpoint and moves them into a repository."""

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from deployment.artifacts.onnx_model import check_against_tensorflow, dense_to_onnx
from deployment.artifacts.quantization_check import auc_change, score_by
from deployment.artifacts.table_files import NONE, described
from deployment.client.client import Client, RequestRefused, ServerLost
from deployment.deploy.backends import models_of, names_of, write_ensemble
from deployment.deploy.deploy_options import HPS, NVIDIA, DeployOptions
from deployment.deploy.model_builder import DeploymentContext
from deployment.deploy.raw_inputs import with_encoder
from deployment.model.served_model import (
    POLICIES,
    DenseModel,
    interface_of,
    original_tensors,
    recommender_interface,
)
from deployment.model.trained_model import TrainedModel, open_checkpoint
from deployment.serving.dense import DenseRunner
from deployment.serving.interface import UNKNOWN_IS_ZERO, Interface
from deployment.serving.scorer import all_cores, to_stderr
from deployment.triton.config_pbtxt import Batching
from deployment.triton.hps.hps_files import read_ps_json, update_ps_json
from deployment.triton.python_models import serving_files
from deployment.triton.repository import VERSION, Deployment, write_origin
from deployment.triton.tensorrt import PLAN_FILE
from runtime.cluster.signals import raise_if_interrupted
from runtime.files.disk import write_errors_name
from runtime.files.staging import stage_key

# Flags that do not change what is deployed.
_NOT_CONTENT = ("model_repository", "overwrite", "load_model", "server_url", "load_model_timeout_s")
# Requests that had reached the previous ensemble, but not its parts, when it was replaced.
_IN_FLIGHT_S = 2.0


def deploy(options: DeployOptions) -> str:
    """Builds the models of a checkpoint and moves all of them, or none, into the repository.

    Returns:
        The text that the command prints.

    Raises:
        ValueError: checkpoint, data set, repository and flags do not match, or a check failed.
        OSError: a file cannot be written.
    """
    trained = open_checkpoint(options.checkpoint_dir, options.dataset_path, options.recipe)
    interface = interface_of(trained)
    check_options(interface, options)
    if options.tensors == NVIDIA:
        interface = original_tensors(interface, trained)
    if options.top_items:
        interface = recommender_interface(interface, trained, options.top_items)
    name = options.model_name or trained.recipe
    builders = models_of(options)
    key = _content_key(options, trained)
    models = names_of(name, builders, options.part_names, key)
    if name in options.part_names.values():
        raise ValueError(
            f"--sparse_model_name and --dense_model_name: expected other names than {name}, that "
            "of the ensemble"
        )
    names = list(dict.fromkeys([*models, name]))  # clients request the last one
    repository = Path(os.path.abspath(options.model_repository))
    read_ps_json(repository)  # before gigabytes are written
    linked = [part for part in models if part in options.part_names.values()]
    version, descriptions = options.model_version, {}
    deployment = Deployment(repository, names, linked, options.overwrite, version)
    with deployment.staging() as staging:
        with write_errors_name(staging), tempfile.TemporaryDirectory(dir=staging) as scratch:
            context, checks = _prepare(options, name, key, trained, interface, Path(scratch))
            for model in names:
                folder = staging / model
                (folder / str(VERSION)).mkdir(parents=True)  # of an ensemble, too
                if model in models:
                    descriptions[model] = models[model].write(context, model, folder)
                else:
                    descriptions[model] = write_ensemble(context, builders, folder)
                write_origin(folder, _origin(options, trained), names)
        (staging / name / str(VERSION)).rename(staging / name / str(version))
        sizes = {model: _size_bytes(staging / model) for model in names}
        raise_if_interrupted()
        deployment.publish(staging, later=[f"{VERSION}/{PLAN_FILE}"])
        update_ps_json(repository)  # also if another backend's model replaced one of HPS
        previous = deployment.previous_parts()
        if options.load_model:
            _load(options, names, previous)
            checks.append(f"{options.server_url} has loaded {', '.join(names)}")
        deployment.remove(previous)
        update_ps_json(repository)
    width = max(map(len, names))
    lines = [
        f"  {model:<{width}}  {sizes[model] / 1e6:10,.2f} MB  {descriptions[model]}"
        for model in names
    ]
    return "\n".join([f"{trained.path} is deployed in {repository}:", *lines, *checks])


def check_options(interface: Interface, options: DeployOptions) -> None:
    """Raises ValueError for options that the model does not support."""
    if not interface.tables and not options.monolithic:
        raise ValueError(
            "the model has no tables, so that there is nothing to look up before its dense part: "
            "use --monolithic, with --backend local or tensorflow"
        )
    if not interface.tables and options.quantize_tables != NONE:
        raise ValueError(
            f"--quantize_tables {options.quantize_tables}: the model has no tables; leave it out"
        )
    if interface.histories and options.unknown_ids == UNKNOWN_IS_ZERO:
        raise ValueError(
            "--unknown_ids zero: the model has histories, where id 0 is padding; leave the flag "
            "out, and leave events with unknown items out of the histories of requests"
        )


def _prepare(
    options: DeployOptions,
    name: str,
    key: str,
    trained: TrainedModel,
    interface: Interface,
    scratch: Path,
) -> tuple[DeploymentContext, list[str]]:
    """Returns the inputs of all models, and a line per comparison with the trained model."""
    quantize, checks = options.quantize_tables, []
    trained_dense = served_dense = DenseModel(trained, output=interface.output)
    onnx = None
    if not options.has_dense_saved_model:
        onnx = scratch / "dense.onnx"
        dense_to_onnx(trained_dense, onnx)
        agreement = check_against_tensorflow(trained_dense, interface, trained, onnx)
        checks.append(f"the dense part in ONNX: {agreement}")
    elif options.precision != "fp32":
        policy = POLICIES[options.precision]
        served_dense = DenseModel(trained, policy, interface.output)
    interface = interface._replace(
        tables=described(interface.tables, quantize),
        unknown_ids=options.unknown_ids,
        precision=options.precision,
        max_batch_size=options.max_batch_size,
    )
    interface = with_encoder(interface, options, trained)
    batching = Batching(
        options.max_batch_size, options.dynamic_batching, options.max_queue_delay_us or 0
    )
    if options.top_items:  # a request has the work of many
        batching = batching._replace(dynamic=False)
    if options.backend == HPS:  # it computes requests one by one, its answer has no batches
        batching = Batching(0, False, 0)
    context = DeploymentContext(
        name, key, options, trained, served_dense, onnx, interface, batching
    )
    if options.check_rows == 0:
        checks.append("AUC as served: not compared with that as trained (--check_rows 0)")
    elif quantize != NONE or options.runs_in_half_precision:
        score, label = _served_scores(context, scratch)
        num_rows = options.check_rows
        checks.append(
            auc_change(trained, interface, trained_dense, quantize, num_rows, score, label)
        )
    return context, checks


def _served_scores(context: DeploymentContext, folder: Path):
    """Returns the dense part as served, as `auc_change` takes it, and a label for the report."""
    options = context.options
    if not options.runs_in_half_precision:
        if options.precision == "fp32":
            return None, "as served"
        # A TensorRT plan in half precision runs on the serving machine only.
        return None, "with the tables as served and the dense part in fp32"
    if options.has_dense_saved_model:
        return score_by(context.dense, context.interface), "as served"
    return DenseRunner(folder, context.interface, all_cores(), to_stderr).run, "as served"


def _load(options: DeployOptions, names: Sequence[str], previous: Sequence[str]) -> None:
    """Lets the server load the models, the ensemble last, and then unload previous parts."""

    def client(model: str) -> Client:
        return Client(options.server_url, model, timeout_s=options.load_model_timeout_s)

    if options.part_names:  # new parts of these names would answer the previous ensemble
        with client(names[-1]) as ensemble, contextlib.suppress(RequestRefused):
            ensemble.unload()
    for name in names:
        with client(name) as model:
            try:
                model.load()
            except (RequestRefused, ServerLost) as error:
                raise type(error)(
                    f"--load_model: {error}. The models are in the repository; a server that loads "
                    "them on request needs --model-control-mode=explicit"
                ) from None
    if previous:
        time.sleep(_IN_FLIGHT_S)
    for name in previous:
        with client(name) as part, contextlib.suppress(RequestRefused):  # it was not loaded
            part.unload()


def _content_key(options: DeployOptions, trained: TrainedModel) -> str:
    """Returns a short hash of what the files of a deployment depend on."""
    flags = dataclasses.asdict(options)
    for name in _NOT_CONTENT:
        del flags[name]
    checkpoint = [(str(file), file.stat()) for file in sorted(trained.path.rglob("*"))]
    files = [(name, status.st_size, status.st_mtime_ns) for name, status in checkpoint]
    code = [file.read_text() for file in serving_files()]
    return stage_key(flags, files, code)[:8]


def _origin(options: DeployOptions, trained: TrainedModel) -> dict:
    return {
        "checkpoint": str(trained.path.resolve()),
        "recipe": trained.recipe,
        "step": trained.index.state.get("step"),
        "backend": options.backend,
        "precision": options.precision,
        "quantize_tables": options.quantize_tables,
    }


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
