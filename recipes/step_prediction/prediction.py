"""Predicted time of a ranking model's training step, from rates that are measured or passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distributed_embeddings.planner import HOST, Plan, Table
from distributed_embeddings.step_time import DenseWork, Rates, StepTime, predict

from config import Config
from dataloading.spec import feature_spec as fs

if TYPE_CHECKING:
    from nn.ctr.config import CTRConfig
    from recipes.step_prediction.kernel_rates import KernelSizes

# Samples and table elements that the kernels are measured with at most.
MAX_SAMPLES = 8192
MAX_TABLE_ELEMENTS = 2**26

# Of an A100, like the defaults of `Rates`: half of the peak in bfloat16 and float16 (3.12e14).
_ASSUMED_16_BIT_FLOPS_PER_S = 1.56e14
_STATE_BYTES = {"adagrad": 4, "adam": 8, "lazy_adam": 8}

# Names and units of rates in the report, in its order.
_TEXTS = {
    "product_flops_per_s": ("matrix products", 1e12, "TFLOP/s"),
    "activation_bytes_per_s": ("activations", 1e9, "GB/s"),
    "lookup_bytes_per_s": ("row lookup", 1e9, "GB/s"),
    "row_update_bytes_per_s": ("row update", 1e9, "GB/s"),
    "dense_update_bytes_per_s": ("dense update", 1e9, "GB/s"),
    "host_bytes_per_s": ("rows in host memory", 1e9, "GB/s"),
    "exchange_bytes_per_s": ("all-to-all in a machine", 1e9, "GB/s"),
    "sum_bytes_per_s": ("all-reduce in a machine", 1e9, "GB/s"),
    "network_bytes_per_s": ("network of a rank", 1e9, "GB/s"),
    "latency_s": ("latency of a collective", 1e-6, "us"),
    "input_bytes_per_s": ("input of a rank", 1e9, "GB/s"),
}


@dataclass(frozen=True)
class Measured:
    """Rates of this machine (attributes of `Rates`), and what they were measured with."""

    rates: Mapping[str, float]
    compute_dtype: str
    note: str


def work_of(
    config: Config, spec: fs.FeatureSpec, shape: CTRConfig, compute_dtype: str
) -> DenseWork:
    """Returns the work of a training step outside the tables."""
    from nn.ctr.work import dense_work

    channels = (fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, fs.LABEL_CHANNEL)
    sample_bytes = sum(
        spec.dtype(name).itemsize * hotness
        for channel in channels
        for name, hotness in zip(spec.channel(channel), spec.hotnesses(channel), strict=True)
    )
    return dense_work(
        shape,
        4 if compute_dtype == "float32" else 2,
        _STATE_BYTES.get(config.optimizer.optimizer, 0),
        sample_bytes,
    )


def kernel_sizes(config: Config, shape: CTRConfig, plan: Plan, compute_dtype: str) -> KernelSizes:
    """Returns the sizes of a rank of a plan, cut to what is measured in seconds."""
    from recipes.step_prediction.kernel_rates import KernelSizes, capped_rows

    w, size = plan.workload, plan.world_size
    samples = min(max(1, w.global_batch_size // size), MAX_SAMPLES)
    rows = capped_rows(
        [t.rows for t in w.tables], [t.dim for t in w.tables], MAX_TABLE_ELEMENTS // size
    )
    tables = tuple(
        Table(table.name, count, table.dim, table.itemsize)
        for table, count in zip(w.tables, rows, strict=True)
    )
    vectors = sum(f.num_vectors * w.tables[f.table].dim for f in w.features)
    return KernelSizes(
        shape=shape,
        workload=replace(w, tables=tables, world_size=1, global_batch_size=samples),
        samples=samples,
        compute_dtype=compute_dtype,
        optimizer=config.optimizer.optimizer,
        sparse_optimizer=config.optimizer.sparse_optimizer,
        exchange_bytes=samples * vectors * w.exchange_itemsize,
    )


def measure(config: Config, shape: CTRConfig, plan: Plan) -> Measured:
    """Measures the rates of this machine, with as many ranks as were started.

    Raises:
        ValueError: The plan has exchanges within a machine, and neither several ranks nor a flag
            provide their rate.
    """
    from runtime.cluster import distributed
    from runtime.hardware import device as devices

    flags = config.distribution
    world = distributed.connect(flags.rank_timeout_s)
    has_exchange = plan.world_size > 1 and flags.plan_ranks_per_machine > 1
    if has_exchange and world.size == 1 and flags.plan_machine_gb_per_s is None:
        raise ValueError(
            f"--plan_measure of {plan.world_size} ranks: expected several processes, which measure "
            "the exchange between ranks of a machine, got one: start it with horovodrun -np 2, or "
            "pass --plan_machine_gb_per_s"
        )
    device = devices.set_up(config.device, world.local_rank, world.local_size)
    from recipes.step_prediction.kernel_rates import KernelRates

    sizes = kernel_sizes(config, shape, plan, device.compute_dtype)
    rates = KernelRates(sizes, world).measure()
    ranks = f"{world.size} rank{'s' if world.size > 1 else ''}"
    note = f"{device.kind}, {device.compute_dtype}, {ranks}, {sizes.samples:,} samples per rank"
    return Measured(rates, device.compute_dtype, note)


def compute_dtype_of(config: Config) -> str:
    """Returns the dtype of activations of a plan without a device."""
    return "bfloat16" if config.device.amp else "float32"


def rates_of(config: Config, compute_dtype: str, measured: Mapping[str, float]) -> Rates:
    """Returns the rates: those of flags, otherwise measured ones, otherwise assumed ones."""
    rates = Rates()
    if compute_dtype != "float32":
        rates = replace(rates, product_flops_per_s=_ASSUMED_16_BIT_FLOPS_PER_S)
    return replace(rates, **{**measured, **_rates_of_flags(config)})


def _rates_of_flags(config: Config) -> dict[str, float]:
    flags = config.distribution
    memory = ("activation_bytes_per_s", "lookup_bytes_per_s", "row_update_bytes_per_s")
    settings = (
        (flags.plan_tflops, 1e12, ("product_flops_per_s",)),
        (flags.plan_memory_gb_per_s, 1e9, (*memory, "dense_update_bytes_per_s")),
        (flags.plan_machine_gb_per_s, 1e9, ("exchange_bytes_per_s", "sum_bytes_per_s")),
        (flags.plan_network_gb_per_s, 1e9, ("network_bytes_per_s",)),
        (flags.plan_input_gb_per_s, 1e9, ("input_bytes_per_s",)),
        (flags.plan_latency_us, 1e-6, ("latency_s",)),
    )
    return {
        rate: value * unit for value, unit, rates in settings if value is not None for rate in rates
    }


def describe(config: Config, spec: fs.FeatureSpec, shape: CTRConfig, plan: Plan) -> str:
    """Returns the prediction of `--plan_only` as text."""
    measured = Measured({}, compute_dtype_of(config), "")
    if config.distribution.plan_measure:
        measured = measure(config, shape, plan)
    dtype = measured.compute_dtype
    rates = rates_of(config, dtype, measured.rates)
    per_machine = config.distribution.plan_ranks_per_machine
    step = predict(plan, work_of(config, spec, shape, dtype), rates, per_machine)
    origins = {
        f"measured here ({measured.note})": measured.rates.keys() - _rates_of_flags(config).keys(),
        "by flags": _rates_of_flags(config).keys(),
    }
    known = set().union(*origins.values())
    origins["assumed (half of the published peaks of an A100-80GB; no GPU was measured)"] = (
        _TEXTS.keys() - known
    )
    used = _used_rates(plan, per_machine)
    lines = describe_step(step)
    for origin, names in origins.items():
        texts = [
            f"{text} {_number(getattr(rates, name) / factor)} {unit}"
            for name, (text, factor, unit) in _TEXTS.items()
            if name in names and name in used
        ]
        if texts:
            lines.append(f"rates {origin}: {', '.join(texts)}")
    return "\n".join(lines)


def describe_step(step: StepTime) -> list[str]:
    """Returns the time of a step, of its parts, and the samples per second."""
    names, times = [], []
    for part, seconds in step.parts_s.items():
        if seconds:
            time_text = _number(seconds * 1e3)
            width = max(len(part), len(time_text))
            names.append(part.rjust(width))
            times.append(time_text.rjust(width))
    limit = "limited by input" if step.is_limited_by_input else "input is hidden"
    return [
        f"predicted step: {_number(step.total_s * 1e3)} ms, {step.samples_per_s:,.0f} samples/s "
        f"({limit}); ms of each part on its slowest rank, not overlapped:",
        "  ".join(names),
        "  ".join(times),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _used_rates(plan: Plan, ranks_per_machine: int) -> set[str]:
    """Returns the rates that the prediction depends on."""
    used = set(_TEXTS)
    if plan.world_size == 1:
        used.discard("latency_s")
    if plan.world_size == 1 or ranks_per_machine == 1:
        used -= {"exchange_bytes_per_s", "sum_bytes_per_s"}
    if plan.world_size <= ranks_per_machine:
        used.discard("network_bytes_per_s")
    if not any(s.device == HOST for shards in plan.table_shards for s in shards):
        used.discard("host_bytes_per_s")
    return used
