"""Step times that `--plan_only` predicts for an A100-80GB, and those that NVIDIA published."""

from distributed_embeddings.step_time import predict

from benchmarks.harness.report import table
from benchmarks.network import models
from dataloading.generate_feature_spec import VARIANTS
from dataloading.synthetic.rows import synthetic_spec
from recipes import ctr, step_prediction

RANKS = 8


def comparison() -> list[str]:
    """Lines of a table of all published models and precisions; nothing of it is measured here."""
    rows = []
    for model in models.MODELS:
        spec = synthetic_spec(VARIANTS[model.variant])
        for precision in models.PRECISIONS:
            predicted = predicted_ms(model, spec, precision)
            published = models.BATCH_SIZE / model.samples_per_s[precision] * 1e3
            ratio = f"{predicted / published:.2f}"
            rows.append((model.name, precision, f"{published:.2f}", f"{predicted:.2f}", ratio))
    columns = ("model", "precision", "published ms", "predicted ms", "predicted / published")
    note = (
        f"One DGX A100 ({RANKS} x 80 GB), global batch {models.BATCH_SIZE:,}. Published: NVIDIA's "
        "throughput of its own recipe (`benchmarks/network/models.py`). Predicted: our plan with "
        "half of the published peaks, fixed beforehand. Nothing was measured on a GPU."
    )
    return [note, "", *table(columns, rows, num_text=2)]


def predicted_ms(model: models.PublishedModel, spec, precision: str) -> float:
    config = models.ranking_config(model, precision)
    shape, dtype = ctr.model_config(config, spec), step_prediction.compute_dtype_of(config)
    work = step_prediction.work_of(config, spec, shape, dtype)
    rates = step_prediction.rates_of(config, dtype, {})
    plan = ctr.make_plan(config, spec, RANKS)
    return predict(plan, work, rates, RANKS).total_s * 1e3
