"""The recipe `dcnv2.py` in training, its kernels by themselves, and the prediction from those."""

from pathlib import Path

import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.step_time import predict

import config as configuration
from benchmarks.dlrm_training.ours import DLRMTraining
from benchmarks.harness.tensorflow_training import step_prefixes, wait
from benchmarks.harness.worker import parser_of, serve_training, timed_in_turn
from config.presets import mlperf_settings
from dataloading.spec.feature_spec import TRAIN
from recipes import ctr, step_prediction
from recipes.step_prediction.kernel_rates import KernelRates
from runtime.cluster import distributed


def configure(folder: Path, threads: int, flags: dict) -> configuration.Config:
    """The flags of `--preset mlperf`; `folder` holds the rows."""
    return configuration.Config("dcnv2").replace(
        **mlperf_settings()
        | {"interaction": "cross", "dataset_path": str(folder / "rows"), "eval_mapping": TRAIN}
        | {"shuffle": False, "seed": 1, "cpu": True, "evals_per_epoch": 0}
        | {"auc_threshold": None}
        | {"intra_op_parallelism": threads, "inter_op_parallelism": threads}
        | flags
    )


class PredictedTraining(DLRMTraining):
    """A training, and the prediction of its step."""

    def __init__(self, config: configuration.Config, world: World):
        super().__init__(config, world, ranks_per_machine=world.size)
        shape = ctr.model_config(config, self.spec)
        dtype = step_prediction.compute_dtype_of(config)
        self._config, self._dtype = config, dtype
        self._plan = self.recipe.model.embedding.plan
        self._work = step_prediction.work_of(config, self.spec, shape, dtype)
        sizes = step_prediction.kernel_sizes(config, shape, self._plan, dtype)
        self._kernels = KernelRates(sizes, world)
        self._prefixes = step_prefixes(self.trainer, self.iterator)

    def predict(self) -> dict[str, dict[str, float]]:
        """Measures the kernels; returns their rates, and the predicted ms of the parts."""
        measured = self._kernels.measure(repeats=1)
        rates = step_prediction.rates_of(self._config, self._dtype, measured)
        step = predict(self._plan, self._work, rates)
        parts = {part: seconds * 1e3 for part, seconds in step.parts_s.items()}
        return {"rates": measured, "parts": parts, "step": step.total_s * 1e3}

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of the prefixes of a step, in turn."""
        calls = {name: lambda call=call: wait(call()) for name, call in self._prefixes.items()}
        return timed_in_turn({**calls, "step": self.step}, count)


def main() -> None:
    args = parser_of(__doc__).parse_args()
    world = distributed.connect()

    def start(flags: dict) -> PredictedTraining:
        flags = {name: tuple(v) if isinstance(v, list) else v for name, v in flags.items()}
        return PredictedTraining(configure(args.folder, args.threads, flags), world)

    serve_training(tf.__version__, start, args.address, world.rank)


if __name__ == "__main__":
    main()
