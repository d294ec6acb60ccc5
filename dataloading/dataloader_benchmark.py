"""Throughput of batches of a data set, without a model.

    python -m dataloading.dataloader_benchmark --dataset_path data/mine --dataset_type tf_raw

Each of `--repeats` passes opens the split `train` again, takes `--warmup_steps` batches, and
times the up to `--max_batches` that follow. Bytes are those of the tensors that a model gets.
"""

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.formats.split_tfrecords.dataset import SplitTFRecordsDataset
from dataloading.pipeline.batch import RaggedIds
from dataloading.pipeline.sample_dataset import SampleDataset
from dataloading.pipeline.shuffle import check_flags
from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset
from runtime.cli import exit_status


class Pass(NamedTuple):
    """Content and duration of the timed batches of a pass."""

    samples: int
    ids: int
    size_bytes: int
    elapsed_s: float


def time_pass(
    loader: SampleDataset, epoch: int, warmup_steps: int, max_batches: int, sleep_s: float = 0.0
) -> Pass:
    """Times one pass; batches are handed to Python and dropped.

    Raises:
        ValueError: there is no batch after the warm-up, or a row that breaks a rule.
    """
    import tensorflow as tf

    if loader.num_batches <= warmup_steps:
        raise ValueError(
            f"the data set has {loader.num_batches} batches of {loader.batch_size} rows, "
            f"--warmup_steps {warmup_steps} leaves none to time: choose fewer, or a smaller "
            "--batch_size"
        )
    try:
        batches = iter(loader.dataset(epoch))
        for _ in range(warmup_steps):
            next(batches)
        samples = ids = size_bytes = 0
        start = time.perf_counter()
        for batch in itertools.islice(batches, max_batches):
            samples += batch.labels.shape[0]
            tensors = [batch.inputs.numerical, batch.labels, batch.weights]
            for feature in batch.inputs.categorical:
                parts = feature if isinstance(feature, RaggedIds) else (feature,)
                ids += parts[0].shape.num_elements()
                tensors += parts
            size_bytes += sum(t.shape.num_elements() * t.dtype.size for t in tensors)
            time.sleep(sleep_s)
        elapsed_s = time.perf_counter() - start
    except tf.errors.OpError as error:
        if loader.failure is None:
            raise
        raise ValueError(loader.failure) from error
    return Pass(samples, ids, size_bytes, elapsed_s)


def benchmark(options: argparse.Namespace) -> str:
    """Runs the benchmark that the flags request; returns a table for people.

    Raises:
        ValueError: flags out of range, or a data set that cannot be read.
    """
    check_flags(options, 1, "batch_size", "max_batches", "repeats")
    check_flags(options, 0, "warmup_steps", "sleep")
    if options.run_eagerly or options.tfdata_debug:
        import tensorflow as tf

        tf.config.run_functions_eagerly(options.run_eagerly)
        if options.tfdata_debug:
            tf.data.experimental.enable_debug_mode()
    spec = FeatureSpec.from_yaml(Path(options.dataset_path) / options.feature_spec)
    kinds = {"tf_raw": RawBinaryDataset, "split_tfrecords": SplitTFRecordsDataset}
    order = "shuffled" if options.shuffle else "file order"
    loader_options = {"shuffle": options.shuffle}
    if options.dataset_type == "synthetic":
        if not options.shuffle:
            raise ValueError(
                "--noshuffle is only read with stored samples (--dataset_type tf_raw or "
                "split_tfrecords); leave it out"
            )
        kinds["synthetic"], order = SyntheticDataset, "generated"
        loader_options = {"num_batches": options.warmup_steps + options.max_batches}
    passes, numbers = [], (options.warmup_steps, options.max_batches, options.sleep)
    for epoch in range(options.repeats):
        loader = kinds[options.dataset_type](spec, TRAIN, options.batch_size, **loader_options)
        passes.append(time_pass(loader, epoch, *numbers))
    lines = [
        f"{options.dataset_type}, {passes[0].samples:,} samples of {passes[0].ids:,} ids, batch "
        f"{options.batch_size:,}, {order}, {len(passes)} passes"
    ]
    for name in ("samples", "ids", "size_bytes"):
        rates = [getattr(timed, name) / timed.elapsed_s for timed in passes]
        unit = "bytes" if name == "size_bytes" else name
        lines.append(
            f"million {unit} per second: median {statistics.median(rates) / 1e6:.3f}, lowest "
            f"{min(rates) / 1e6:.3f}, highest {max(rates) / 1e6:.3f}"
        )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dataloading.dataloader_benchmark",
        description="Measures how fast batches of the training rows can be read.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--dataset_path", default="synthetic_dataset", help="folder of the data set")
    kinds = ("tf_raw", "split_tfrecords", "synthetic")
    help_text = "its format; synthetic generates rows of its feature spec"
    add("--dataset_type", default="tf_raw", choices=kinds, help=help_text)
    add("--feature_spec", default="feature_spec.yaml", help="file name in --dataset_path")
    add("--batch_size", type=int, default=65_536, help="rows of a batch")
    add("--max_batches", type=int, default=100, help="batches of a pass that are timed, at most")
    add("--warmup_steps", type=int, default=5, help="batches of a pass before those")
    add("--repeats", type=int, default=1, help="passes")
    help_text = "pause in each batch, as of a step"
    add("--sleep", type=float, default=0.0, metavar="SECONDS", help=help_text)
    add("--run_eagerly", action="store_true", help="run without compiled functions")
    add("--tfdata_debug", action="store_true", help="run the pipeline in tf.data's debug mode")
    for flag in ("--amp", "--xla"):
        add(flag, action="store_true", help="no effect: batches do not depend on it")
    help_text = "read stored samples in file order, not shuffled as in training"
    add("--noshuffle", dest="shuffle", action="store_false", help=help_text)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 (130 for Ctrl-C) with a message."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: print(benchmark(flags)))


if __name__ == "__main__":
    sys.exit(main())
