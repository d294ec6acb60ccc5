"""What the models of a deployment are made of, and what a model is to who puts them together."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from deployment.deploy.table_placement import Placement
from deployment.model.served_model import DenseModel
from deployment.model.served_parts import Parts
from deployment.model.trained_model import Trained
from deployment.serving.interface import Interface, Tensor, answered, received
from deployment.triton.config import GPU, Batching, Instances


class Job(NamedTuple):
    """One deployment.

    Attributes:
      name: of the model that is asked.
      trained, parts: the trained model.
      dense: the part behind its look-ups, in TensorFlow.
      onnx: the same in float32 as an ONNX file; None for a model that needs none.
      interface: of the whole model.
      placement: which tables lie on the device.
      quantize: how tables are stored, `--quantize_tables`.
      batching: of each model.
      instances: copies of each model; of one on GPUs, on each of them.
      gpus: numbers of the GPUs that have models.
      threads: of each copy on the CPU; 0: the server's cores divided by the copies.
      execution_env: Python environment of models in Python; None: the server's.
      cache_share: of each table's rows, that HPS keeps on each GPU, in (0, 1].
      served_path: the repository as the server sees it.
    """

    name: str
    trained: Trained
    parts: Parts
    dense: DenseModel
    onnx: Path | None
    interface: Interface
    placement: Placement
    quantize: str
    batching: Batching
    instances: int
    gpus: tuple[int, ...]
    threads: int
    execution_env: str | None
    cache_share: float
    served_path: str

    @property
    def on_gpus(self) -> Instances:
        """Copies of a model on GPUs."""
        return Instances(GPU, self.instances, self.gpus)

    @property
    def warm_up(self) -> tuple[int, ...]:
        """Rows of the batches that models compute before they are ready."""
        return 1, self.interface.max_batch_size


# `write(job, name of the model, folder)` fills a model's folder, which has an empty version folder;
# returns a sentence for the report.
Write = Callable[[Job, str, Path], str]


class Model(NamedTuple):
    """A model of a deployment.

    Attributes:
      name: in an ensemble it stands behind the deployment's name.
      receives, answers: its tensors, by the interface.
      write: writes it.
    """

    name: str
    receives: Callable[[Interface], Sequence[Tensor]]
    answers: Callable[[Interface], Sequence[Tensor]]
    write: Write


def of_role(role: str, write: Write) -> Model:
    """A model named after its role, with the tensors that `deployment.serving` has for that."""
    return Model(
        role,
        lambda interface: received(interface._replace(role=role)),
        lambda interface: answered(interface._replace(role=role)),
        write,
    )
