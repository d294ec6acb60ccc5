"""Describes the models of a server, and scores rows, or recommends items to them.

python -m deployment.client --url 127.0.0.1:8001
python -m deployment.client --model clicks --describe
python -m deployment.client --model clicks --json '{"city": "Bern", "price": 12.5}'
python -m deployment.client --model clicks --rows orders.csv
python -m deployment.client --model movies_top --json '{"user": "u17", "top": 10}'
"""

import csv
import itertools
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from numpy.typing import NDArray

from config.command import CommandOptions, parse
from config.flag import flag, requires
from deployment import nvidia_flags
from deployment.client import raw_columns
from deployment.client.client import Client
from deployment.client.recommendations import (
    MAX_ROWS,
    RecommendedItem,
    recommendations,
    recommends,
)
from deployment.serving.interface import EXCLUDED, TOP
from runtime.cli import exit_status

_ROWS = 2048  # of a request, to a model without a limit


@dataclass(frozen=True)
class ClientOptions(CommandOptions):
    """Prints the models that a server has ready, or the scores of rows, or recommended items.

    The models are described by their columns or tensors.
    """

    url: str = flag("127.0.0.1:8001", "host:port of the server's gRPC")
    model_name: str | None = flag(None, "only this model", alias="--model")
    describe: bool = flag(False, "print an example of each column, and of a request")
    rows: str | None = flag(
        None,
        "score the raw rows of a file or folder: .csv, .tsv, .txt, .json, .jsonl or .parquet",
        metavar="PATH",
        needs=(requires("model_name"),),
    )
    json: str | None = flag(
        None,
        'score a raw row like {"city": "Bern", "price": 12.5}, or a list of rows',
        needs=(requires("model_name"),),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.describe + bool(self.rows) + bool(self.json) > 1:
            raise ValueError("--describe, --rows, --json: expected one of them")


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, or 2 after an error."""

    def work() -> None:
        flags = parse(ClientOptions, nvidia_flags.CLIENT.translate(argv), "deployment.client")
        if not (flags.rows or flags.json):
            _print_models(flags)
            return
        with Client(flags.url, flags.model_name) as client:
            config = client.config()
            columns = raw_columns.require_columns(config, "--rows, --json")
            recommends_items = recommends(config)
            if flags.json:
                parts = iter([raw_columns.columns_of_json(flags.json, columns)])
            else:
                parts = _parts_of_file(flags.rows, columns, recommends_items)
            num_rows = config.max_batch_size or _ROWS
            if recommends_items:
                requests = _requests(parts, columns, min(num_rows, MAX_ROWS))
                _print_items(recommendations(client, requests))
                return
            _print_scores(client.scores(_requests(parts, columns, num_rows)))

    return exit_status(work)


def _print_models(flags: ClientOptions) -> None:
    with Client(flags.url, flags.model_name or "") as client:
        names = [flags.model_name] if flags.model_name else client.ready_models()
    host, _, port = flags.url.rpartition(":")
    for name in names:
        http = "8000" if port == "8001" else "HTTP_PORT"  # Triton's defaults
        curl = f"curl http://{host}:{http}/v2/models/{name}/generate"
        with Client(flags.url, name) as client:
            print(_description(client.config(), curl if flags.describe else ""))


def _description(config, curl: str) -> str:
    batch = f", up to {config.max_batch_size:,} rows" if config.max_batch_size else ""
    lines = [f"{config.name}: {config.platform or config.backend}{batch}"]
    columns = raw_columns.raw_columns(config)
    lines += raw_columns.column_lines(columns, with_examples=bool(curl))
    inputs = () if columns else config.input
    for kind, tensors in (("input ", inputs), ("output", config.output)):
        for tensor in tensors:
            kinds = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
            dtype = kinds[tensor.data_type].name.removeprefix("TYPE_")
            lines.append(f"  {kind}  {tensor.name}  {dtype} {list(tensor.dims)}")
    if columns and curl:
        row = json.dumps({column.name: column.example for column in columns}, ensure_ascii=False)
        lines.append(f"  {curl} --data {shlex.quote(row)}")
    return "\n".join(lines)


def _parts_of_file(path: str, columns, recommends_items: bool) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the columns of blocks of rows of a file."""
    from deployment.predict.source_rows import open_rows  # DuckDB takes a second to import

    # A misspelt column must not be a missing value in all rows; options have defaults.
    optional = (TOP, EXCLUDED) if recommends_items else ()
    with open_rows(path, [column.name for column in columns], optional=optional) as rows:
        for batch in rows.batches():
            yield dict(zip(batch.schema.names, batch.columns, strict=True))


def _requests(
    parts: Iterable[Mapping[str, pa.Array]], columns, num_rows: int
) -> Iterator[dict[str, NDArray]]:
    """Yields requests of at most `num_rows` rows."""
    for part in parts:
        for start in range(0, len(next(iter(part.values()))), num_rows):
            rows = {name: values.slice(start, num_rows) for name, values in part.items()}
            yield raw_columns.request(rows, columns)


def _print_items(items: Iterable[RecommendedItem]) -> None:
    writer, answers = csv.writer(sys.stdout, lineterminator="\n"), iter(items)
    first = next(answers, None)  # before the header: a refused request prints an error alone
    writer.writerow(RecommendedItem._fields)
    for item in itertools.chain(filter(None, [first]), answers):
        writer.writerow([*item[:-1], str(item.score)])


def _print_scores(scores: Iterable[NDArray]) -> None:
    row = 0
    for answer in scores:
        if not row:
            print("row,score")
        for score in answer[:, 0]:
            print(f"{row},{score!s}")
            row += 1


if __name__ == "__main__":
    sys.exit(main())
