"""One rank of a side of `rank_scaling`: the recipe `dlrm.py` on generated rows, asked by socket."""

import argparse
import json
import os
import resource
import socket
import tempfile

from benchmarks.dlrm_training.recipe import DLRMTraining, configure, dense_bytes
from benchmarks.dlrm_training.step_parts import parts_ms
from benchmarks.harness.worker import answer_requests, timed_ms
from nn.embedding.planner.traffic import KINDS, traffic
from runtime.cluster import distributed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset_path", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--inter_op_threads", type=int, help="--threads where not given")
    args = parser.parse_args()
    world = distributed.connect()
    trainings: dict[str, DLRMTraining] = {}

    def start(key: str, batch_size: int, flags: dict) -> dict:
        training = trainings[key] = DLRMTraining(
            configure(args.dataset_path, args.threads, args.inter_op_threads, batch_size, **flags),
            world,
        )
        model = training.model
        planned = traffic(model.embedding.plan, dense_bytes=dense_bytes(model))[world.rank]
        return {kind: planned.sent(kind) for kind in KINDS}

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
