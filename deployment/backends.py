"""What differs between the servers that a repository can be for: which models, and how batched."""

from typing import NamedTuple

from deployment import gpu_models, hps_keys, hps_models, python_models
from deployment.job import Model, of_role
from deployment.serving.interface import CHECKS, DENSE, SCORER, SPARSE


class Backend(NamedTuple):
    """A kind of server.

    Attributes:
      ensemble: models in the order in which they are called.
      monolithic: all of it as one model; None where there is no such thing.
      monolithic_in_tensorflow: whether TensorFlow computes the dense part of that one, not ONNX.
      batches: whether requests may be put together; else each is computed by itself.
    """

    ensemble: tuple[Model, ...]
    monolithic: Model | None
    monolithic_in_tensorflow: bool = False
    batches: bool = True


def _local(role: str) -> Model:
    return of_role(role, python_models.serving(role))


BACKENDS = {
    # Triton's Python backend, on the CPU. It checks what it gets, request by request.
    "local": Backend(ensemble=(_local(SPARSE), _local(DENSE)), monolithic=_local(SCORER)),
    # SavedModels and TensorRT know a bad request by a failed batch, or not at all.
    "tensorflow": Backend(
        ensemble=(
            _local(CHECKS),
            of_role(SPARSE, gpu_models.write_sparse),
            of_role(DENSE, gpu_models.write_dense),
        ),
        monolithic=of_role(SCORER, gpu_models.write_whole),
        monolithic_in_tensorflow=True,
    ),
    # HPS computes request by request, and its flat answer has no batch.
    "hps": Backend(
        ensemble=(
            of_role(CHECKS, hps_models.write_keys)._replace(
                answers=hps_models.keys_and_dense_inputs
            ),
            Model(SPARSE, hps_keys.asked, hps_models.vectors, hps_models.write_tables),
            of_role(DENSE, hps_models.write_dense)._replace(
                receives=hps_models.vectors_and_dense_inputs
            ),
        ),
        monolithic=None,
        batches=False,
    ),
}
