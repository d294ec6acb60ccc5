"""Flags of preparations that Spark can do, readable without PySpark."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from preproc.arguments import MachineOptions
from runtime.options import flag, flags_of

SPARK = "Spark"  # group of the flags below, and of those that a preparation adds to them


@dataclass(frozen=True, kw_only=True)
class SparkMachineOptions(MachineOptions):
    """Location and settings of Spark; limits of memory and threads are those of a local master."""

    master: str | None = flag(
        None,
        "local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[--threads]). A cluster's "
        "memory is set by spark-submit or --spark_conf, and its workers have temporary folders of "
        "their own",
        SPARK,
    )
    spark_conf: tuple[str, ...] = flag(
        (), "a setting; may be repeated", SPARK, action="append", nargs=None, metavar="KEY=VALUE"
    )


def unread_spark_flags(options: type, flags: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields flags of a command line that Spark, or another engine, does not read, with a reader.

    options: dataclass of all flags, with `engine` among them.
    """
    if flags.get("engine") != "spark":
        yield from ((name, "--engine spark") for name in flags_of(options, SPARK))
    if "master" in flags:
        yield "threads", "no --master, which specifies them itself, like local[4]"
        if not str(flags["master"]).startswith("local"):
            yield (
                "memory_limit",
                "a local --master; a cluster's is --spark_conf spark.executor.memory=...",
            )
