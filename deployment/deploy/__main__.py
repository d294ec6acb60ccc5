"""Writes a trained model as models of Triton Inference Server.

python -m deployment.deploy --checkpoint_dir runs/demo/checkpoint --model_repository repository
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from deployment.artifacts.table_files import NONE
from deployment.deploy.arguments import parse
from deployment.deploy.options import Options
from deployment.serving.interface import UNKNOWN_IS_ZERO
from deployment.serving.scorer import all_cores, to_stderr
from deployment.triton.repository import appear_together, write_marker
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted

# What `--gpus` and `--gpu_cache_share` are where they are not given.
_GPUS, _CACHE_SHARE = (0,), 0.5


class Deployed(NamedTuple):
    """What a deployment came to.

    Attributes:
      repository: the model repository.
      checkpoint: what was deployed.
      models: (name, what it is, bytes) of each, the one to ask last.
      checks: sentences on what was compared.
    """

    repository: Path
    checkpoint: Path
    models: tuple[tuple[str, str, int], ...]
    checks: tuple[str, ...]

    def report(self) -> str:
        """What the command prints."""
        lines = [f"{self.checkpoint} is deployed in {self.repository}:"]
        width = max(len(name) for name, _, _ in self.models)
        for name, what, size_bytes in self.models:
            lines.append(f"  {name:<{width}}  {size_bytes / 1e6:10,.2f} MB  {what}")
        return "\n".join([*lines, *self.checks])


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the models are there, 2 (130 for Ctrl-C and SIGTERM) with a
    message otherwise."""

    def work() -> None:
        print(deploy(parse(argv)).report())

    with interrupted_by_sigterm():
        return exit_status(work, "interrupted; the repository has all new models or none of them")


def deploy(options: Options) -> Deployed:
    """Makes the models of a checkpoint and brings them into the repository, all or none.

    Raises:
      ValueError: the checkpoint, its data set, the repository and the flags do not go together, or
        a check failed.
      OSError: something cannot be written.
    """
    # TensorFlow takes seconds to import, which a wrong flag need not wait for.
    from deployment.deploy.backends import BACKENDS, names_of, write_ensemble
    from deployment.model.served_model import parts_of
    from deployment.model.trained_model import open_checkpoint
    from deployment.triton.hps import files

    trained = open_checkpoint(options.checkpoint_dir, options.dataset_path)
    parts, backend = parts_of(trained), BACKENDS[options.backend]
    check_tables(parts, options)
    check_unknown_ids(parts, options)
    name = options.model_name or trained.recipe
    called = backend.monolithic if options.monolithic else backend.ensemble
    models = names_of(name, called)
    names = list(dict.fromkeys([*models, name]))  # the one to ask is last
    repository = Path(os.path.abspath(options.model_repository))
    files.read_ps_json(repository)  # before gigabytes are written
    with appear_together(repository, names, options.overwrite, to_stderr) as staging:
        with tempfile.TemporaryDirectory(dir=staging) as scratch:
            job, checks = _prepare(options, name, trained, parts, repository, Path(scratch))
            said = {}
            for model in names:
                folder = _make_folder(staging, model)
                if model in models:
                    said[model] = models[model].write(job, model, folder)
                else:
                    said[model] = write_ensemble(job, called, folder)
                write_marker(folder, _made_of(options, trained), names)
        made = tuple((model, said[model], _size_bytes(staging / model)) for model in names)
        raise_if_interrupted()
    files.update_ps_json(repository)
    return Deployed(repository, trained.path, made, tuple(checks))


def check_tables(parts, options: Options) -> None:
    """Raises ValueError for what a model without tables cannot be."""
    if parts.tables:
        return
    if not options.monolithic:
        raise ValueError(
            "the model has no tables, so that there is nothing to look up in front of its dense "
            "part: use --monolithic, with --backend local or tensorflow"
        )
    if options.quantize_tables != NONE:
        raise ValueError(
            f"--quantize_tables {options.quantize_tables}: the model has no tables; leave it out"
        )


def check_unknown_ids(parts, options: Options) -> None:
    """Raises ValueError where an unknown id of a history would become padding."""
    if parts.histories and options.unknown_ids == UNKNOWN_IS_ZERO:
        raise ValueError(
            "--unknown_ids zero: the model has histories, where id 0 is padding and no event; "
            "leave the flag out, and leave events with unknown items out of the histories sent"
        )


def _prepare(options: Options, name: str, trained, parts, repository: Path, scratch: Path):
    """What all models are made of, and sentences on what was compared.

    Args:
      repository: absolute.
      scratch: a folder for what no model keeps.
    """
    from deployment.artifacts import saved_models
    from deployment.artifacts.onnx_model import check_against_tensorflow, dense_to_onnx
    from deployment.artifacts.quantization_check import auc_change
    from deployment.artifacts.table_files import described
    from deployment.deploy.backends import BACKENDS
    from deployment.deploy.job import Job
    from deployment.deploy.table_placement import place
    from deployment.model.served_model import POLICIES, make_dense
    from deployment.serving.interface import Interface
    from deployment.triton.config import Batching

    backend, quantize, checks = BACKENDS[options.backend], options.quantize_tables, []
    dense, onnx = make_dense(trained), None
    if not (options.monolithic and backend.monolithic_in_tensorflow):
        onnx = scratch / "dense.onnx"
        saved_models.write_dense(dense, scratch / "dense")
        dense_to_onnx(scratch / "dense", onnx)
        agreement = check_against_tensorflow(dense, parts, trained, onnx)
        checks.append(f"the dense part in ONNX: {agreement}")
    first = dense
    if onnx is None and options.precision != "fp32":
        dense = make_dense(trained, POLICIES[options.precision])
    batching = Batching(
        options.max_batch_size, options.dynamic_batching, options.max_queue_delay_us or 0
    )
    job = Job(
        name=name,
        trained=trained,
        parts=parts,
        dense=dense,
        onnx=onnx,
        interface=Interface(
            recipe=trained.recipe,
            inputs=parts.inputs,
            features=parts.features,
            lookups=parts.lookups,
            tables=described(parts.tables, quantize),
            dense_inputs=parts.dense_inputs,
            width=parts.width,
            unknown_ids=options.unknown_ids,
            precision=options.precision,
            max_batch_size=options.max_batch_size,
            histories=parts.histories,
        ),
        placement=place(parts.tables, round((options.device_memory_gb or 0) * 1e9), quantize),
        quantize=quantize,
        batching=batching if backend.batches else Batching(0, False, 0),
        instances=options.instances,
        gpus=options.gpus or _GPUS,
        threads=options.threads_per_instance or 0,
        execution_env=options.execution_env,
        cache_share=options.gpu_cache_share or _CACHE_SHARE,
        served_path=options.served_path or str(repository),
    )
    if options.check_rows == 0:
        checks.append("AUC as served: not compared with that as trained (--check_rows 0)")
    elif quantize != NONE or options.runs_in_half_precision:
        served, served_as = _dense_as_served(options, job, scratch)
        change = auc_change(trained, parts, first, quantize, options.check_rows, served, served_as)
        checks.append(change.report())
    return job, checks


def _dense_as_served(options: Options, job, folder: Path):
    """The dense part as it is served, as `served_auc.auc_change` has it, and what to call that.

    Args:
      folder: has `dense.onnx`, where the job has one.

    Raises:
      ValueError: OpenVINO is not there.
    """
    from deployment.artifacts.quantization_check import score_by
    from deployment.serving.dense import Dense

    if not options.runs_in_half_precision:
        if options.precision == "fp32":
            return None, "as served"
        # A plan in half precision runs where it is served only.
        return None, "with the tables as served and the dense part in fp32"
    if options.is_one_saved_model:
        return score_by(job.dense, job.parts), "as served"
    return Dense(folder, job.interface, all_cores(), to_stderr).run, "as served"


def _make_folder(staging: Path, model: str) -> Path:
    """A model's folder, with an empty version folder, which an ensemble has, too."""
    from deployment.triton.config import VERSION

    (staging / model / str(VERSION)).mkdir(parents=True)
    return staging / model


def _made_of(options: Options, trained) -> dict:
    """What a model's folder says of its origin."""
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


if __name__ == "__main__":
    sys.exit(main())
