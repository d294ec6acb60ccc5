"""One rank of `benchmarks.network`: the recipe `dlrm.py` on generated rows, asked by socket."""

import argparse
import dataclasses
import json
import socket
import time
from pathlib import Path

from benchmarks.dlrm_training.recipe import DLRMTraining, configure, dense_bytes
from benchmarks.harness.worker import answer_requests, timed_ms
from benchmarks.network.machines import LINK
from nn.embedding.planner.traffic import traffic
from runtime.cluster import distributed


def passed_bytes() -> dict[str, int]:
    """Bytes that the machine's link has received and sent so far, headers included."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == LINK:
            numbers = counts.split()
            return {"received": int(numbers[0]), "sent": int(numbers[8])}
    raise ValueError(f"this process has no network interface {LINK}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset_path", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--ranks_per_machine", type=int, required=True)
    args = parser.parse_args()
    world = distributed.connect()
    trainings: dict[str, DLRMTraining] = {}

    def start(key: str, batch_size: int, flags: dict) -> dict:
        config = configure(args.dataset_path, 1, 1, batch_size, **flags)
        training = trainings[key] = DLRMTraining(config, world)
        model = training.model
        planned = traffic(
            model.embedding.plan,
            ranks_per_machine=args.ranks_per_machine,
            dense_bytes=dense_bytes(model),
        )[world.rank]
        return dataclasses.asdict(planned)

    def counted(action) -> dict:
        """Bytes that pass the link during an action; all ranks begin and end together."""
        world.barrier()
        before, begin = passed_bytes(), time.perf_counter()
        ms = action()
        world.barrier()
        after, elapsed_s = passed_bytes(), time.perf_counter() - begin
        passed = {way: after[way] - before[way] for way in after}
        return {**passed, "ms": ms, "elapsed_s": elapsed_s}

    def steps(key: str, count: int) -> dict:
        return counted(lambda: [timed_ms(trainings[key].step) for _ in range(count)])

    def idle(seconds: float) -> dict:
        return counted(lambda: time.sleep(seconds))

    def describe() -> dict:
        import tensorflow as tf

        return {"tensorflow": tf.__version__}

    actions = {"start": start, "steps": steps, "idle": idle, "describe": describe}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(args.socket)
        stream = connection.makefile("rw")
        stream.write(json.dumps({"rank": world.rank}) + "\n")
        stream.flush()
        answer_requests(actions, stream, stream)


if __name__ == "__main__":
    main()
