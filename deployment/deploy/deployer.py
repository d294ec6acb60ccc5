"""Builds the models of a checkpoint and moves them into a repository."""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from deployment.artifacts import saved_models
from deployment.artifacts.onnx_model import check_against_tensorflow, dense_to_onnx
from deployment.artifacts.quantization_check import auc_change, score_by
from deployment.artifacts.table_files import NONE, described
from deployment.deploy.backends import BACKENDS, Backend, names_of, write_ensemble
from deployment.deploy.deploy_options import DeployOptions
from deployment.deploy.model_builder import DeploymentContext
from deployment.deploy.table_placement import place
from deployment.model.served_model import POLICIES, make_dense, serving_spec_of
from deployment.model.serving_spec import ServingSpec
from deployment.model.trained_model import TrainedModel, open_checkpoint
from deployment.serving.dense import DenseRunner
from deployment.serving.interface import UNKNOWN_IS_ZERO, Interface
from deployment.serving.scorer import all_cores, to_stderr
from deployment.triton.config import Batching
from deployment.triton.repository import VERSION, staged_models, write_marker
from runtime.cluster.signals import raise_if_interrupted


class DeploymentReport(NamedTuple):
    """Result of a deployment.

    Attributes:
        repository: model repository.
        checkpoint: deployed checkpoint.
        models: (name, description, bytes) per model; clients request the last one.
        checks: one line per comparison with the trained model.
    """

    repository: Path
    checkpoint: Path
    models: tuple[tuple[str, str, int], ...]
    checks: tuple[str, ...]

    def report(self) -> str:
        """Returns the text that the command prints."""
        lines = [f"{self.checkpoint} is deployed in {self.repository}:"]
        width = max(len(name) for name, _, _ in self.models)
        for name, description, size_bytes in self.models:
            lines.append(f"  {name:<{width}}  {size_bytes / 1e6:10,.2f} MB  {description}")
        return "\n".join([*lines, *self.checks])


def deploy(options: DeployOptions) -> DeploymentReport:
    """Builds the models of a checkpoint and moves all of them, or none, into the repository.

    Raises:
        ValueError: checkpoint, data set, repository and flags do not match, or a check failed.
        OSError: a file cannot be written.
    """
    trained = open_checkpoint(options.checkpoint_dir, options.dataset_path)
    serving_spec, backend = serving_spec_of(trained), BACKENDS[options.backend]
    check_tables(serving_spec, options)
    check_unknown_ids(serving_spec, options)
    name = options.model_name or trained.recipe
    builders = backend.monolithic if options.monolithic else backend.ensemble
    models = names_of(name, builders)
    names = list(dict.fromkeys([*models, name]))  # clients request the last one
    repository = Path(os.path.abspath(options.model_repository))
    for each in BACKENDS.values():
        each.check_repository(repository)  # before gigabytes are written
    with staged_models(repository, names, options.overwrite) as staging:
        descriptions = {}
        with tempfile.TemporaryDirectory(dir=staging) as scratch:
            context, checks = _prepare(options, name, trained, serving_spec, Path(scratch))
            for model in names:
                folder = staging / model
                (folder / str(VERSION)).mkdir(parents=True)  # of an ensemble, too
                if model in models:
                    descriptions[model] = models[model].write(context, model, folder)
                else:
                    descriptions[model] = write_ensemble(context, builders, folder)
                write_marker(folder, _origin(options, trained), names)
        sizes = [(model, descriptions[model], _size_bytes(staging / model)) for model in names]
        raise_if_interrupted()
    for each in BACKENDS.values():
        each.update_repository(repository)
    return DeploymentReport(repository, trained.path, tuple(sizes), tuple(checks))


def check_tables(serving_spec: ServingSpec, options: DeployOptions) -> None:
    """Raises ValueError for options that a model without tables does not support."""
    if serving_spec.tables:
        return
    if not options.monolithic:
        raise ValueError(
            "the model has no tables, so that there is nothing to look up before its dense part: "
            "use --monolithic, with --backend local or tensorflow"
        )
    if options.quantize_tables != NONE:
        raise ValueError(
            f"--quantize_tables {options.quantize_tables}: the model has no tables; leave it out"
        )


def check_unknown_ids(serving_spec: ServingSpec, options: DeployOptions) -> None:
    """Raises ValueError if an unknown id of a history would become padding."""
    if serving_spec.histories and options.unknown_ids == UNKNOWN_IS_ZERO:
        raise ValueError(
            "--unknown_ids zero: the model has histories, where id 0 is padding; leave the flag "
            "out, and leave events with unknown items out of the histories of requests"
        )


def _prepare(
    options: DeployOptions,
    name: str,
    trained: TrainedModel,
    serving_spec: ServingSpec,
    scratch: Path,
) -> tuple[DeploymentContext, list[str]]:
    """Returns the inputs of all models, and a line per comparison with the trained model.

    Args:
        scratch: folder for temporary files.
    """
    backend, quantize, checks = BACKENDS[options.backend], options.quantize_tables, []
    trained_dense = served_dense = make_dense(trained)
    onnx = None
    if not (options.monolithic and backend.monolithic_in_tensorflow):
        onnx = scratch / "dense.onnx"
        saved_models.write_dense(trained_dense, scratch / "dense")
        dense_to_onnx(scratch / "dense", onnx)
        agreement = check_against_tensorflow(trained_dense, serving_spec, trained, onnx)
        checks.append(f"the dense part in ONNX: {agreement}")
    elif options.precision != "fp32":
        served_dense = make_dense(trained, POLICIES[options.precision])
    context = DeploymentContext(
        name=name,
        options=options,
        trained=trained,
        serving_spec=serving_spec,
        dense=served_dense,
        onnx=onnx,
        interface=_interface(options, trained, serving_spec),
        placement=place(
            serving_spec.tables, round((options.device_memory_gb or 0) * 1e9), quantize
        ),
        batching=_batching(options, backend),
    )
    if options.check_rows == 0:
        checks.append("AUC as served: not compared with that as trained (--check_rows 0)")
    elif quantize != NONE or options.runs_in_half_precision:
        score, label = _served_scores(context, scratch)
        change = auc_change(
            trained, serving_spec, trained_dense, quantize, options.check_rows, score, label
        )
        checks.append(change.report())
    return context, checks


def _interface(
    options: DeployOptions, trained: TrainedModel, serving_spec: ServingSpec
) -> Interface:
    return Interface(
        recipe=trained.recipe,
        inputs=serving_spec.inputs,
        features=serving_spec.features,
        lookups=serving_spec.lookups,
        tables=described(serving_spec.tables, options.quantize_tables),
        dense_inputs=serving_spec.dense_inputs,
        width=serving_spec.width,
        unknown_ids=options.unknown_ids,
        precision=options.precision,
        max_batch_size=options.max_batch_size,
        histories=serving_spec.histories,
    )


def _batching(options: DeployOptions, backend: Backend) -> Batching:
    if not backend.batches:
        return Batching(0, False, 0)
    return Batching(
        options.max_batch_size, options.dynamic_batching, options.max_queue_delay_us or 0
    )


def _served_scores(context: DeploymentContext, folder: Path):
    """Returns the dense part as served, as `auc_change` takes it, and a label for the report.

    Args:
        folder: has `dense.onnx` if the context has an ONNX file.

    Raises:
        ValueError: OpenVINO is not installed.
    """
    options = context.options
    if not options.runs_in_half_precision:
        if options.precision == "fp32":
            return None, "as served"
        # A TensorRT plan in half precision runs on the serving machine only.
        return None, "with the tables as served and the dense part in fp32"
    if options.is_one_saved_model:
        return score_by(context.dense, context.serving_spec), "as served"
    return DenseRunner(folder, context.interface, all_cores(), to_stderr).run, "as served"


def _origin(options: DeployOptions, trained: TrainedModel) -> dict:
    """Returns what the marker file of a model records of its origin."""
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
