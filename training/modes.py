"""Modes of a run other than training: eval, predict, ... Each returns the summary of the run."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from distributed_embeddings.collectives import CollectiveError

from runtime.files import column_files, predictions
from training import importance_report
from training.schedule import samples_of_batch
from training.state import RunContext

Summary = dict[str, Any]

# Batches that `--mode inference` measures at least, without --max_steps or --benchmark_steps.
MIN_MEASURED_BATCHES = 100


def evaluate(run: RunContext) -> Summary:
    """Measures the metrics of the restored model, or of random weights, over every sample."""
    from runtime.logs.timer import Speeds

    if not run.config.checkpoint.restore_checkpoint_path:
        run.log.message("note: the weights are random, without --restore_checkpoint_path")
    start, speeds = time.perf_counter(), Speeds()
    metrics = _measure(run)
    assert run.recipe.valid is not None
    speeds.evaluated(run.recipe.valid.num_samples, time.perf_counter() - start)
    for ranking in run.recipe.rankings:
        names = ", ".join(ranking.names[::2])
        run.log.message(f"{names}: the items of {ranking.num_users:,} users are ranked")
        with run.log.bar("ranking", ranking.num_rounds) as advance:
            metrics |= ranking.measure(advance)
    return {**metrics, **run.log.names.of_summary(speeds.summary())}


def measure_importance(run: RunContext) -> Summary:
    """Measures how much the metrics of the restored model depend on each feature."""
    from nn.metrics.evaluator import ClickEvaluator
    from nn.metrics.importance import permutation_importance

    evaluator, start = run.recipe.evaluator, time.perf_counter()
    assert isinstance(evaluator, ClickEvaluator) and run.config.run.seed is not None
    metrics = _measure(run)
    repeats = run.config.evaluation.importance_repeats
    total = evaluator.num_batches * repeats * len(evaluator.dataset.features)
    with run.log.bar("importance", total) as advance:
        importances = permutation_importance(
            evaluator, metrics, repeats, run.config.run.seed, advance
        )
    importance_report.report(run, importances)
    return {**metrics, "elapsed_s": time.perf_counter() - start}


def predict(run: RunContext) -> Summary:
    """Writes the restored model's score of every sample, in the order of the samples."""
    from nn.metrics.classification import NonFiniteScores
    from nn.metrics.predictor import predict as score_batches

    path, dataset, kept = run.config.run.predictions_path, run.recipe.valid, run.recipe.kept
    assert path is not None and dataset is not None
    start, fields = time.perf_counter(), kept.fields if kept else ()
    with (
        predictions.open_predictions(path, dataset.num_samples, fields=fields)
        if run.world.is_chief
        else nullcontext() as writer
    ):
        try:
            with run.log.bar("prediction", dataset.num_batches) as advance:
                for scores in score_batches(run.recipe.model, dataset, run.world):
                    if writer is not None:
                        rows = writer.num_added, writer.num_added + len(scores)
                        writer.add(scores, kept.read(*rows) if kept else ())
                    advance()
        except NonFiniteScores as error:  # on every rank
            raise CollectiveError(str(error)) from None
    if "predictions_path" in run.config.explicit:  # not a temporary file of `recipes.api.predict`
        text = f"wrote the scores of {dataset.num_samples:,} rows ({dataset.split}) to {path}"
        run.log.message(text)
    elapsed_s = time.perf_counter() - start
    throughput = dataset.num_samples / elapsed_s
    return {"rows": dataset.num_samples, "elapsed_s": elapsed_s, "throughput": throughput}


def recommend(run: RunContext) -> Summary:
    """Writes the top items of users, in the order of the users."""
    import pyarrow as pa

    from nn.metrics.classification import NonFiniteScores

    path, recommendation = run.config.run.predictions_path, run.recipe.recommendation
    assert path is not None and recommendation is not None
    start, first_user, num_short = time.perf_counter(), 0, 0
    schema = pa.schema(recommendation.fields())
    with (
        column_files.open_table(path, schema, predictions.FLAG)
        if run.world.is_chief
        else nullcontext() as table
    ):
        try:
            with run.log.bar("recommendation", recommendation.num_rounds) as advance:
                for top in recommendation.top_items():
                    if table is not None:
                        table.write(recommendation.columns(first_user, top))
                        num_short += int((top.items[:, -1] < 0).sum())
                    first_user += len(top.items)
                    advance()
        except NonFiniteScores as error:  # on every rank
            raise CollectiveError(str(error)) from None
    if num_short:
        run.log.message(
            f"note: {num_short:,} users have fewer than {recommendation.count} items left: all of "
            "them were written"
        )
    num_users = recommendation.num_users
    run.log.message(f"wrote the top {recommendation.count} items of {num_users:,} users to {path}")
    elapsed_s = time.perf_counter() - start
    throughput = num_users / elapsed_s
    run.log.metadata("throughput", "users/s")
    return {"users": num_users, "elapsed_s": elapsed_s, "throughput": throughput}


def benchmark_inference(run: RunContext) -> Summary:
    """Measures throughput and latency, and the metrics of a restored model.

    A measurement is one batch in memory to its scores in memory. At least 100 batches are measured
    after the warm-up, or `--max_steps`, or `--benchmark_steps`; fewer batches are used repeatedly.
    """
    start = time.perf_counter()
    flags = run.config.evaluation
    if run.recipe.sweep:
        summary = _sweep_batch_sizes(run)
    else:
        assert run.recipe.valid is not None
        summary = _time_batches(run, run.recipe.valid)
    summary["elapsed_s"] = time.perf_counter() - start
    saved_model = run.config.original.saved_model_input_path
    if not run.config.checkpoint.restore_checkpoint_path and not saved_model:
        run.log.message(
            "note: the model is untrained, without --restore_checkpoint_path: speed only"
        )
        return summary
    return summary if flags.benchmark or run.recipe.sweep else {**summary, **_measure(run)}


def _sweep_batch_sizes(run: RunContext) -> Summary:
    """Returns throughput (samples/s) and latencies (seconds) of each batch size."""
    summary: Summary = {}
    for dataset in run.recipe.sweep:
        statistics, size = _time_batches(run, dataset), dataset.batch_size
        summary[f"batch_{size}_mean_throughput"] = statistics["throughput"]
        for name in ("mean", "p90", "p95", "p99"):
            summary[f"batch_{size}_{name}_latency"] = statistics[f"latency_{name}"] / 1e3
        mean, p99 = (statistics[f"latency_{name}"] for name in ("mean", "p99"))
        run.log.message(
            f"batch size {size}: {statistics['throughput']:,.0f} samples/s, latency {mean:.3f} ms "
            f"(p99 {p99:.3f} ms)"
        )
    return summary


def _time_batches(run: RunContext, dataset: Any) -> dict[str, float]:
    """Returns `LatencyTimer.statistics` of the batches of a data set."""
    from dataloading.pipeline.repeated import repeated
    from nn.metrics.evaluator import Scorer
    from runtime.logs.timer import LatencyTimer, StepTimer

    flags = run.config.evaluation
    warmup = flags.warmup_batches
    measured = flags.benchmark_steps if flags.benchmark else run.config.run.max_steps
    if flags.benchmark and not measured:
        measured = max(1, dataset.num_batches - warmup)
    if measured == -1:
        measured = max(MIN_MEASURED_BATCHES, dataset.num_batches - warmup)
    # A short last batch has another latency: it is left out if there are full batches.
    full = max(1, dataset.num_samples // dataset.batch_size)
    timer, laps = LatencyTimer(warmup_steps=warmup), StepTimer(warmup_steps=warmup)
    scorer, batches = Scorer(run.recipe.model), repeated(dataset.dataset, full)
    with run.log.bar("inference", warmup + measured) as advance:
        for number in range(warmup + measured):
            batch = next(batches)
            num_samples = samples_of_batch(dataset, number % full)
            with timer.measure(num_samples):
                scorer.score(batch.inputs).numpy()
            laps.step(num_samples)
            advance()
            step = number + 1 - warmup  # measured so far
            if step > 0 and step % run.config.logs.print_freq == 0:
                run.log.log(step, {"throughput": laps.lap()}, epoch=0)
    return timer.statistics()


MODES: Mapping[str, Callable[[RunContext], Summary]] = {
    "eval": evaluate,
    "importance": measure_importance,
    "predict": predict,
    "recommend": recommend,
    "inference": benchmark_inference,
}


def _measure(run: RunContext) -> dict[str, float]:
    """Returns metrics over every sample; the evaluator's notes are logged."""
    evaluator = run.recipe.evaluator
    assert evaluator is not None
    with run.log.bar("evaluation", evaluator.num_batches) as advance:
        metrics = dict(evaluator.evaluate(lambda: advance() or False))
    run.log_notes(evaluator.notes)
    return metrics
