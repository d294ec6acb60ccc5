"""One rank of a side of `rank_scaling`: the recipe `dlrm.py` on generated rows, asked by socket."""

import argparse
import dataclasses
import json
import os
import resource
import socket
import tempfile

import config as configuration
import ranking
from benchmarks import dlrm_workload as workload
from benchmarks.step_parts import parts_ms
from benchmarks.worker import answer_requests, timed_ms
from dataloading.feature_spec import TRAIN, FeatureSpec
from runtime import device, distributed


class Training:
    """The recipe's model and trainer, and where it is in the rows."""

    def __init__(self, config: configuration.Config, world: distributed.World):
        from nn.trainer import Trainer

        place = device.set_up(config.run, world.local_rank, world.local_size)
        spec = FeatureSpec.from_yaml(f"{config.data.dataset_path}/feature_spec.yaml")
        recipe = ranking.build(config, spec, world, place)
        self.model = recipe.model
        self.trainer = Trainer(recipe.model, recipe.loss, recipe.groups, place.loss_scale, world)
        self.iterator = iter(recipe.train.dataset().repeat())
        self.costs = dataclasses.asdict(recipe.model.embedding.plan.costs[world.rank])

    def step(self) -> int:
        """One training step, to its end; the loss is read once a turn, as training does."""
        self.trainer.train_step(self.iterator)
        return int(self.trainer.step)

    def dense_bytes(self) -> int:
        """Size of the gradients that all ranks sum, beside those of tables."""
        return sum(v.shape.num_elements() * v.dtype.size for v in self.model.dense_variables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset_path", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--inter_op_threads", type=int, help="--threads where not given")
    args = parser.parse_args()
    world = distributed.connect()
    trainings: dict[str, Training] = {}

    def start(key: str, batch_size: int, flags: dict) -> dict:
        config = configuration.Config("dlrm").replace(
            dataset_path=args.dataset_path,
            batch_size=batch_size,
            valid_batch_size=batch_size,
            eval_mapping=TRAIN,
            learning_rate=workload.LEARNING_RATE,
            warmup_steps=0,
            decay_steps=0,
            seed=1,
            cpu=True,
            intra_op_parallelism=args.threads,
            inter_op_parallelism=args.inter_op_threads or args.threads,
            **flags,
        )
        training = trainings[key] = Training(config, world)
        return {"costs": training.costs, "dense_bytes": training.dense_bytes()}

    def steps(key: str, count: int) -> dict:
        before = resource.getrusage(resource.RUSAGE_SELF)
        ms = [timed_ms(trainings[key].step) for _ in range(count)]
        after = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "ms": ms,
            "user_ms": (after.ru_utime - before.ru_utime) * 1e3 / count,
            "system_ms": (after.ru_stime - before.ru_stime) * 1e3 / count,
            "loss": trainings[key].trainer.progress().loss,
        }

    def parts(key: str, count: int) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            return {"parts": parts_ms(trainings[key].step, count, folder)}

    def describe() -> dict:
        import tensorflow as tf

        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"tensorflow": tf.__version__, "peak_kib": peak_kib}

    actions = {"start": start, "steps": steps, "parts": parts, "describe": describe}
    with socket.create_connection(("127.0.0.1", args.port)) as connection:
        stream = connection.makefile("rw")
        stream.write(json.dumps({"rank": world.rank, "pid": os.getpid()}) + "\n")
        stream.flush()
        answer_requests(actions, stream, stream)


if __name__ == "__main__":
    main()
