"""Tracking of a run by MLflow (`--mlflow_uri`)."""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from config.flag import mask_passwords

# Names of metrics and parameters may have these characters, letters and digits.
_PUNCTUATION = "_-. :/"
_MAX_PARAMETERS, _MAX_LENGTH = 100, 6000  # of a request, of a value


class MLflowRun:
    """A run in an MLflow tracking server: parameters, and metrics by step.

    It has no effect on MLflow's global state. After the start, an error of the server ends the
    tracking and not the training.

    Args:
        uri: of the server (http://HOST:PORT) or of a database (sqlite:///FILE).
        experiment: name of the experiment, which is created if it does not exist.

    Raises:
        ValueError: the package is not installed, or the run cannot be created there.
    """

    def __init__(self, uri: str, experiment: str, name: str, parameters: Mapping[str, Any]):
        # By default, a call to a server that is gone takes minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise ValueError(
                "--mlflow_uri needs the package mlflow, which is not installed: install it "
                "(pip install mlflow), or leave the flag out"
            ) from None
        self._uri, self._metric, self._failure = mask_passwords(uri), Metric, ""
        try:
            self._client = MlflowClient(tracking_uri=uri)
            existing = self._client.get_experiment_by_name(experiment)
            create = self._client.create_experiment
            identifier = existing.experiment_id if existing else create(experiment)
            self._run = self._client.create_run(identifier, run_name=name).info.run_id
            values = [
                Param(_valid_name(key), str(value)[:_MAX_LENGTH])
                for key, value in parameters.items()
            ]
            for start in range(0, len(values), _MAX_PARAMETERS):
                part = values[start : start + _MAX_PARAMETERS]
                self._client.log_batch(self._run, params=part)
        except Exception as error:  # MLflow's errors are of many libraries
            raise ValueError(
                f"--mlflow_uri {self._uri}: cannot be used: {_first_line(error)}"
            ) from None

    def write(self, step: int, values: Mapping[str, float]) -> str | None:
        """Writes values of a step; returns a note if that fails, after which nothing is written.

        Values that are not finite are left out.
        """
        now = int(1e3 * time.time())
        metrics = [
            self._metric(_valid_name(name), float(value), now, step)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        return self._attempt(lambda: self._client.log_batch(self._run, metrics=metrics))

    def close(self, has_failed: bool) -> None:
        """Ends the run."""
        status = "FAILED" if has_failed else "FINISHED"
        self._attempt(lambda: self._client.set_terminated(self._run, status))

    def _attempt(self, action: Callable[[], Any]) -> str | None:
        if self._failure:
            return None
        try:
            action()
        except Exception as error:
            self._failure = f"{self._uri} cannot be used any more: {_first_line(error)}"
            return f"note: the tracking by MLflow ends: {self._failure}"
        return None


def _valid_name(name: str) -> str:
    """Returns a name that MLflow accepts: `hr@10` is `hr_10`."""
    return "".join(c if c.isalnum() or c in _PUNCTUATION else "_" for c in name)


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return str(mask_passwords(text))
