"""Flags of logs and the profile."""

from dataclasses import dataclass

from config.flag import OWN, TRAIN, TRAIN_OR_INFERENCE, Rules, excludes, requires


def _check_organization(name: str) -> None:
    if not name:
        raise ValueError("--mlperf_organization must not be empty, got ''")


@dataclass(frozen=True)
class LogConfig:
    """Logs and profile."""

    run_dir: str | None = Rules(resume=OWN, is_local=True).flag(
        None,
        "folder of the run's log, plots and profile; by default runs/<recipe>-<data>-<number>; "
        "runs that read a checkpoint make it in the folder of its training: eval-test",
    )
    verbose: bool = Rules(resume=OWN, is_local=True).flag(
        False,
        "print the lines of epochs and of the summary as NVIDIA's dllogger does, too; also printed "
        "with --log_path and the other flags that only NVIDIA's recipes have",
    )
    print_freq: int = Rules(at_least=1, modes=TRAIN_OR_INFERENCE).flag(
        1000, "steps between log lines; the first ones are at 10, 20, 50, 100, ... steps"
    )
    log_filename: str = Rules(resume=OWN, used_with=(excludes("log_path"),)).flag(
        "log.json", "file name of the DLLogger log in --run_dir"
    )
    log_path: str | None = Rules(resume=OWN, is_local=True).flag(
        None, "path of the DLLogger log; replaces --log_filename"
    )
    rank_logs: str | None = Rules(resume=OWN, is_local=True, needs=(excludes("plan_only"),)).flag(
        None,
        "folder of per-rank log files; they hold stdout, stderr and crash traces, which also go "
        "to the terminal",
    )
    mlperf_log: str | None = Rules(
        resume=OWN,
        is_local=True,
        modes=TRAIN,
        part="ranking",
        needs=(requires("interaction", "cross"),),
    ).flag(
        None,
        "file of MLPerf's log lines; those of DLRM-DCNv2, which the compliance checker of "
        "mlperf-logging reads; rank 0 writes them",
    )
    mlperf_organization: str = Rules(
        resume=OWN,
        modes=TRAIN,
        part="ranking",
        needs=(requires("mlperf_log"),),
        check=_check_organization,
    ).flag("unnamed", "organization in --mlperf_log")
    tensorboard_dir: str | None = Rules(resume=OWN, is_local=True).flag(
        None, "folder of TensorBoard summaries; by default none"
    )
    mlflow_uri: str | None = Rules(resume=OWN, is_local=True).flag(
        None,
        "MLflow tracking server (http://HOST:PORT) or database (sqlite:///FILE); for parameters "
        "and metrics; needs the package mlflow; by default none",
    )
    profiler_start_step: int | None = Rules(resume=OWN, modes=TRAIN, at_least=0).flag(
        None, "step at which the profiler starts"
    )
    profiler_steps: int = Rules(
        resume=OWN, modes=TRAIN, at_least=1, used_with=(requires("profiler_start_step"),)
    ).flag(10, "steps that the profiler records")
    profiled_rank: int = Rules(
        resume=OWN, modes=TRAIN, at_least=0, used_with=(requires("profiler_start_step"),)
    ).flag(0, "rank that is profiled")
