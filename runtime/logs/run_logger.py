"""Log of a run: DLLL file, readable lines and progress bar on the terminal, TensorBoard."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.cluster.failure import stack_sample
from runtime.logs.dlll import DlllWriter, LogNames, plain, stdout_line
from runtime.logs.mlflow_tracking import MLflowRun
from runtime.readable import metric_text, readable, text_table


class RunLogger:
    """Log of a run: all of it as DLLL lines (runtime/logs/dlll.py), a readable summary on stdout.

    A context manager that closes the files. Lines reach the operating system when they are written,
    so a killed run keeps them.

    Args:
        log_path: the DLLL file, if any; its folder is created. The file of an earlier run is
            renamed, unless `append`, which adds a parameter line.
        parameters: of the run; the first line of the file.
        tensorboard_dir: folder for TensorBoard scalars, or None.
        mlflow_run: gets the same scalars; None without MLflow.
        enabled: False on all ranks but 0, which write nothing.
        total_steps: steps of the whole run; None if unknown.
        initial_step: first step of a resumed run.
        names: names under which values are written.
        bar_values: names of values that the progress bar shows.
        prints_dlll: whether stdout gets the lines of epochs and of the summary as dllogger prints
            them, too; those of steps would double the output.

    Attributes:
        path: the DLLL file; None without one, and on other ranks.

    Raises:
        OSError: log_path or tensorboard_dir cannot be written.
    """

    def __init__(
        self,
        log_path: str | Path | None,
        parameters: Mapping[str, Any],
        *,
        tensorboard_dir: str | Path | None = None,
        mlflow_run: MLflowRun | None = None,
        enabled: bool = True,
        total_steps: int | None = None,
        initial_step: int = 0,
        append: bool = False,
        names: LogNames = LogNames(),
        bar_values: Sequence[str] = (),
        prints_dlll: bool = False,
    ):
        self.names, self.path = names, Path(log_path) if log_path and enabled else None
        self._prints_dlll = prints_dlll
        self._enabled, self._has_bars = enabled, enabled and sys.stderr.isatty()
        self._total_steps, self._initial_step = total_steps, initial_step
        self._bar: Any = None
        self._inner_bar: Any = None
        self._file: DlllWriter | None = None
        self._tensorboard: Any = None
        self._mlflow_run, self._last_step = mlflow_run, initial_step
        self._bar_values = bar_values
        self._latest: dict[str, str] = {}
        self._formats: dict[str, tuple[str | None, str | None]] = {}
        self._splits: dict[str, str | None] = {}
        self._summary_written = False
        if not enabled:
            return
        if self.path:
            self._file = DlllWriter(self.path, append)
            self._file.log("PARAMETER", parameters)
            if self._file.earlier:
                self.print(f"note: the log of an earlier run is {self._file.earlier} now")
        if tensorboard_dir:
            import tensorflow as tf

            Path(tensorboard_dir).mkdir(parents=True, exist_ok=True)
            self._tensorboard = tf.summary.create_file_writer(str(tensorboard_dir))

    def metadata(
        self,
        metric: str,
        unit: str | None = None,
        format: str | None = None,
        split: str | None = None,
    ) -> None:
        """Describes a metric that `log` or `summary` will use, for the file and for the readable
        lines.

        Args:
            unit: shown after the value, e.g. "samples/s".
            format: of the value, e.g. ".6f".
            split: shown before the first of its metrics, unless its name begins with it.
        """
        fields = {"unit": unit, "format": format and f":{format}", "split": split}
        renamings = (self.names.step, self.names.epoch, self.names.summary)
        stored = dict.fromkeys(names.get(metric, metric) for names in renamings)
        for name in {**stored, metric: None}:
            self._splits[name] = split
            self._formats[name] = (None if unit == name else unit, format)
            if self._file and name in stored:
                self._file.metadata(name, {k: v for k, v in fields.items() if v is not None})

    def log(self, step: int, data: Mapping[str, Any], epoch: int | None = None) -> None:
        """Writes values that belong to a step, counted since the start of training."""
        total = f"/{self._total_steps}" if self._total_steps else ""
        label = f"{'' if epoch is None else f'epoch {epoch} '}step {step}{total}"
        stored = self._write(step if epoch is None else (epoch, step), data, self.names.step)
        self.print(f"{label}  {self._readable(data)}")
        self._write_scalars(step, stored)

    def end_epoch(self, epoch: int, step: int, data: Mapping[str, Any]) -> None:
        """Writes values of a whole epoch, which ended at `step`; metrics are printed first."""
        stored = self._write((epoch,), data, self.names.epoch)
        names = sorted(data, key=lambda name: self._splits.get(name) is None)
        self.print(f"epoch {epoch} done  {self._readable({n: data[n] for n in names})}")
        self._write_scalars(step, stored)

    def summary(
        self, data: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]] = {}
    ) -> dict[str, Any]:
        """Writes the run's result as last line of the file, and prints it as a table; messages then
        go to stdout only.

        Args:
            columns: values of the table by the title of their column; the others are in a line.

        Returns:
            The line's values under their names.
        """
        self._close_bar()
        added = self.names.added_to(data)
        printed = {name: value for name, value in data.items() if name not in self.names.unprinted}
        complete = self._write((), printed, self.names.summary, added)
        self.print("\n".join(self._result_lines(printed, columns)))
        if self._mlflow_run is not None:
            numbers = {k: v for k, v in complete.items() if isinstance(v, int | float)}
            if note := self._mlflow_run.write(self._last_step, numbers):
                self.message(note)
        self._summary_written = True
        return complete

    def message(self, text: str) -> None:
        """Writes a sentence, for example about a fallback or a restored checkpoint."""
        self.record(text)
        self.print(text)

    def record(self, text: str) -> None:
        """Writes a sentence to the file only."""
        if self._file and not self._summary_written:
            self._file.log("MESSAGE", {"message": text})

    def progress(self, step: int) -> None:
        """Moves the progress bar to a step of the run; no bar unless stderr is a terminal."""
        if not self._has_bars:
            return
        if self._bar is None:
            self._bar = _open_bar(total=self._total_steps, initial=self._initial_step, unit="step")
            self._bar.set_postfix(self._latest, refresh=False)
        self._bar.update(step - self._bar.n)

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[], None]]:
        """Yields a function that advances a progress bar of its own by one of `total` batches.

        Like `progress`, the bar is drawn on the chief, if stderr is a terminal. On every rank the
        function records progress for the detection of failures.
        """
        if not self._has_bars:
            yield stack_sample.record_progress
            return
        with _open_bar(total=total, desc=label, unit="batch") as self._inner_bar:

            def advance() -> None:
                stack_sample.record_progress()
                self._inner_bar.update()

            try:
                yield advance
            finally:
                self._inner_bar = None

    def close(self, has_failed: bool = False) -> None:
        """Closes files and progress bar; may be called twice."""
        self._close_bar()
        if self._mlflow_run is not None:
            self._mlflow_run.close(has_failed)
            self._mlflow_run = None
        for stream in (self._file, self._tensorboard):
            if stream:
                stream.close()
        self._file = self._tensorboard = None

    def __enter__(self) -> "RunLogger":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close(has_failed=exception[0] is not None)

    def _write(
        self,
        step: int | tuple[int, ...],
        data: Mapping[str, Any],
        names: Mapping[str, str],
        added: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Writes a line of `data` under other names and of `added` to the file, and shows the data
        in the progress bar; returns the values of the line."""
        shown = [name for name in self._bar_values if name in data]
        self._latest |= {name: readable(data[name], format=".5f") for name in shown}
        if self._bar is not None:
            self._bar.set_postfix(self._latest, refresh=False)
        renamed = {names.get(name, name): plain(value) for name, value in data.items()}
        complete = {**renamed, **(added or {})}
        if self._file:
            self._file.log(step, complete)
        if self._prints_dlll and isinstance(step, tuple) and len(step) < 2:
            self.print(stdout_line(step, complete, self._formats))
        return complete

    def _result_lines(
        self, data: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]]
    ) -> list[str]:
        """Returns the lines of a summary: a table of columns, and one line of other values."""
        names = list(dict.fromkeys(name for column in columns.values() for name in column))
        cells = {name: [column.get(name) for column in columns.values()] for name in names}
        rows = [[name, *(metric_text(value, None) for value in cells[name])] for name in names]
        rest = {
            name: value
            for name, value in data.items()
            if not {name, name.removeprefix("best_").removesuffix("_step")} & set(names)
        }
        lines = ["", *text_table(["metric", *columns], rows), ""] if rows else []
        return [*lines, self._readable(rest)] if rest else lines[:-1]

    def _text(self, name: str, value: Any) -> str:
        return readable(value, *self._formats.get(name, ()))

    def _write_scalars(self, step: int, data: Mapping[str, Any]) -> None:
        self._last_step = step
        values = {name: plain(value) for name, value in data.items()}
        values = {name: value for name, value in values.items() if isinstance(value, int | float)}
        if self._mlflow_run is not None and (note := self._mlflow_run.write(step, values)):
            self.message(note)
        if self._tensorboard is None:
            return
        import tensorflow as tf

        try:
            with self._tensorboard.as_default(step=step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._tensorboard.flush()
        except tf.errors.OpError as error:  # a full disk
            self._tensorboard = None
            self.message(f"note: TensorBoard summaries end: {error.message.splitlines()[0]}")

    def _readable(self, data: Mapping[str, Any]) -> str:
        words, shown = [], None
        for name, value in data.items():
            split = self._splits.get(name)
            if split is not None and name.startswith(f"{split}_"):
                split = None
            prefix = f"{split} " if split not in (None, shown) else ""
            words.append(f"{prefix}{name} {self._text(name, value)}")
            shown = split
        return "  ".join(words)

    def print(self, line: str) -> None:
        """Prints a line on the terminal only, above the progress bar."""
        if bar := self._bar or self._inner_bar:
            bar.write(line, file=sys.stdout)
            sys.stdout.flush()
        elif self._enabled:
            print(line, flush=True)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _open_bar(**options: Any) -> Any:
    """Returns a bar of tqdm that disappears when it is closed."""
    from tqdm import tqdm

    return tqdm(file=sys.stderr, dynamic_ncols=True, leave=False, **options)
