"""Predicted time of a ranking model's training step (`--plan_only`)."""

from recipes.step_prediction.prediction import (
    compute_dtype_of,
    describe,
    kernel_sizes,
    rates_of,
    work_of,
)

__all__ = ["compute_dtype_of", "describe", "kernel_sizes", "rates_of", "work_of"]
