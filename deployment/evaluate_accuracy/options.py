"""Flags of `python -m deployment.evaluate_accuracy`."""

from dataclasses import dataclass
from pathlib import Path

from config.command import refuse
from config.flag import excludes, flag, requires
from deployment.request_options import RequestOptions

_OF_SERVER = (excludes("model"),)


@dataclass(frozen=True, kw_only=True)
class AccuracyOptions(RequestOptions):
    """Evaluates a served model on the test rows of its data set."""

    url: str = flag("127.0.0.1:8001", "host:port of the server's gRPC", needs=_OF_SERVER)
    model_name: str | None = flag(
        None, "name of the served model (default: the recipe)", needs=_OF_SERVER
    )
    model: str | None = flag(
        None,
        "folder of a deployed model, instead of a server",
        metavar="DIR",
        needs=(requires("checkpoint_dir"),),
    )
    wait_s: float = flag(0.0, "seconds to wait for server and models", at_least=0, needs=_OF_SERVER)
    eval_mapping: str = flag(
        "auto",
        "split; auto (default): test, or validation if there is no test split. A training "
        "evaluates on validation",
        choices=("auto", "train", "validation", "test"),
    )
    batch_size: int = flag(1024, "rows of a request", at_least=1)
    in_flight: int = flag(4, "requests in flight", at_least=1, needs=_OF_SERVER)
    max_rows: int | None = flag(
        None, "number of first rows (default: all)", at_least=1, needs=(excludes("max_steps"),)
    )
    max_steps: int | None = flag(
        None, "batches instead of --max_rows, as NVIDIA's tool counts", at_least=1
    )
    auc_thresholds: int | None = flag(
        None, "bins of an approximate AUC (default: the exact AUC)", at_least=2
    )
    print_freq: int | None = flag(
        None, "requests between lines of progress (default: none)", at_least=1
    )
    log_path: Path | None = flag(None, "DLLL file of the results under NVIDIA's names")
    trained: bool = flag(
        False,
        "compare with the checkpoint in TensorFlow",
        needs=(requires("checkpoint_dir"),),
    )
    tolerance: float = flag(
        1e-6, "largest difference of a metric", at_least=0, needs=(requires("trained"),)
    )

    @property
    def num_rows(self) -> int | None:
        """Number of first rows to evaluate; None: all."""
        return self.max_rows if self.max_steps is None else self.max_steps * self.batch_size

    def __post_init__(self) -> None:
        super().__post_init__()
        is_unknown, described = self.checkpoint_dir is None, self.feature_spec or self.dataset_type
        refuse(
            {
                "--feature_spec, --dataset_type: the checkpoint has them": described
                and not is_unknown,
                "--checkpoint_dir or --dataset_path: missing": is_unknown and not self.dataset_path,
                "--model_name: expected without a checkpoint": is_unknown and not self.model_name,
            }
        )
