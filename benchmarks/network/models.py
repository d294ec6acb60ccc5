"""Published configurations and throughputs, and the bytes that they put on the network.

Published figures are copied from the sources in MODELS and SYNTHETIC; all else is computed.
"""

import itertools
from typing import NamedTuple

import numpy as np
from distributed_embeddings.planner import Limits, Plan, Table, Workload, make_features, plan
from distributed_embeddings.planner.traffic import traffic

import config as configuration
from dataloading.generate_feature_spec import VARIANTS
from dataloading.synthetic.rows import synthetic_spec
from recipes import ctr

BATCH_SIZE = 65536  # of all ranks together, in all that was published
RANKS_PER_MACHINE = 8
DEVICE_MEMORY_GB = 80


class Link(NamedTuple):
    """A connection as it is specified; a program gets less of it."""

    name: str
    bytes_per_s: float  # in one direction
    shared: bool = False  # by the ranks of a machine; else each has its own


# NVIDIA's A100 data sheet: 600 GB/s of NVLink in both directions together.
NVLINK = Link("NVLink", 300e9)
# NVIDIA's DGX A100 data sheet: a ConnectX-6 of 200 Gb/s for each of 8 GPUs.
HDR = Link("InfiniBand HDR, 200 Gb/s a GPU", 25e9)
ETHERNET_100 = Link("100 GbE a machine", 12.5e9, shared=True)  # IEEE 802.3
ETHERNET_10 = Link("10 GbE a machine", 1.25e9, shared=True)
BETWEEN = (HDR, ETHERNET_100, ETHERNET_10)
PRECISIONS = ("TF32", "mixed")  # the latter is --amp


class PublishedModel(NamedTuple):
    """A ranking model as NVIDIA published it: Criteo's terabyte with a frequency threshold."""

    name: str
    recipe: str
    variant: str  # of dataloading.generate_feature_spec
    flags: dict
    samples_per_s: dict[str, float]  # published for 8 GPUs of a DGX A100 (80 GB), by precision


# DLRM: NVIDIA's README of "DLRM for TensorFlow 2". DCNv2: NVIDIA DeepLearningExamples,
# TensorFlow2/Recommendation/DLRM_and_DCNv2/doc/DCNv2.md (June 2023).
_CROSS = {"interaction": "cross", "optimizer": "adam"}
MODELS = (
    PublishedModel(
        "DLRM large", "dlrm", "criteo_t3_synthetic", {}, {"TF32": 9.39e6, "mixed": 13.31e6}
    ),
    PublishedModel(
        "DLRM extra large", "dlrm", "criteo_t0_synthetic", {}, {"TF32": 9.93e6, "mixed": 12.1e6}
    ),
    PublishedModel(
        "DCNv2 large", "dcnv2", "criteo_t3_synthetic", _CROSS, {"TF32": 3.81e6, "mixed": 5.75e6}
    ),
)


class Synthetic(NamedTuple):
    """A synthetic model of NVIDIA Merlin's distributed-embeddings."""

    name: str
    # (how many, rows, columns, ids of each of a table's features)
    tables: tuple[tuple[int, int, int, tuple[int, ...]], ...]
    mlp: tuple[int, ...]  # widths of its layers, without the last one
    num_numerical: int
    pooling: int | None  # columns of the joined vectors that become one, if any
    # published, {GPUs: ms per step}: DGX A100, global batch 65,536, Adagrad
    step_ms: dict[int, float]


# The tables: examples/benchmarks/synthetic_models of distributed-embeddings 0.3
# (github.com/NVIDIA-Merlin/distributed-embeddings). The times: NVIDIA's of DGX-A100-80GB, from its
# developer blog's "Fast, Terabyte-Scale Recommender Training Made Easy with NVIDIA Merlin
# Distributed-Embeddings" (August 2022).
SYNTHETIC = (
    Synthetic(
        "Small",
        (
            *((5, 10_000, 16, (1, 30)), (3, 4_000_000, 32, (1, 30)), (1, 50_000_000, 32, (1, 30))),
            *((1, 50_000_000, 32, (1,)), (30, 10, 16, (1,)), (30, 1_000, 16, (1,))),
            *((5, 10_000, 16, (1,)), (5, 100_000, 32, (1,)), (27, 4_000_000, 32, (1,))),
        ),
        (512, 256, 128),
        10,
        None,
        {8: 14.0, 16: 11.6, 32: 7.4},
    ),
    Synthetic(
        "Medium",
        (
            *((20, 100_000, 64, (1, 50)), (5, 10_000_000, 64, (1, 50))),
            *((1, 100_000_000, 128, (1, 50)), (1, 100_000_000, 128, (1,))),
            *((80, 10, 32, (1,)), (60, 1_000, 32, (1,)), (80, 100_000, 64, (1,))),
            *((24, 200_000, 64, (1,)), (40, 10_000_000, 64, (1,))),
        ),
        (1024, 512, 256, 128),
        25,
        7,
        {8: 64.4, 16: 44.9, 32: 31.1, 128: 17.2},
    ),
    Synthetic(
        "Large",
        (
            *((40, 100_000, 64, (1, 100)), (16, 15_000_000, 64, (1, 100))),
            *((1, 200_000_000, 128, (1, 100)), (1, 200_000_000, 128, (1,))),
            *((100, 10, 32, (1,)), (100, 10_000, 32, (1,)), (160, 100_000, 64, (1,))),
            *((50, 500_000, 64, (1,)), (144, 15_000_000, 64, (1,))),
        ),
        (2048, 1024, 512, 256),
        100,
        8,
        {32: 65.0, 128: 33.4},
    ),
)
_COLUMN_SLICE_THRESHOLD = 1280 * 2**20  # with which those were started


class Load(NamedTuple):
    """Bytes of a training step, sent or received, whichever is more."""

    within: float  # of the busiest rank, to or from ranks of its machine
    between: float  # of the busiest rank, to or from other machines
    of_machine: float  # of the busiest machine, to or from other machines

    def ms(self, link: Link) -> float:
        """Least milliseconds: ranks of a machine by NVLink, machines by `link`."""
        if link == NVLINK:
            return self.within / link.bytes_per_s * 1e3
        size_bytes = self.of_machine if link.shared else self.between
        return size_bytes / link.bytes_per_s * 1e3

    def step_ms(self, link: Link) -> float:
        """Least milliseconds of NVLink and `link` together, which work at the same time."""
        return max(self.ms(NVLINK), self.ms(link))


def load_of(sharding_plan: Plan, dense_bytes: float) -> Load:
    ranks = traffic(sharding_plan, ranks_per_machine=RANKS_PER_MACHINE, dense_bytes=dense_bytes)

    def bytes_of(place: str) -> np.ndarray:
        ways = (f"sent_{place}", f"received_{place}")
        totals = [[sum(getattr(rank, way).values()) for way in ways] for rank in ranks]
        return np.array(totals).reshape(-1, RANKS_PER_MACHINE, 2)

    within, between = bytes_of("within"), bytes_of("between")
    return Load(within.max(), between.max(), between.sum(axis=1).max())


def ranking_config(model: PublishedModel, precision: str) -> configuration.Config:
    """The flags with which a published model is planned."""
    return configuration.Config(model.recipe).replace(
        dataset_type="synthetic",
        batch_size=BATCH_SIZE,
        amp=precision == "mixed",
        plan_device_memory_gb=DEVICE_MEMORY_GB,
        **model.flags,
    )


def ranking_load(model: PublishedModel, ranks: int, precision: str) -> Load:
    """The load of a published model by the plan that its recipe makes."""
    config, spec = ranking_config(model, precision), synthetic_spec(VARIANTS[model.variant])
    dense_bytes = 4 * ctr.model_config(config, spec).num_dense_weights
    return load_of(ctr.make_plan(config, spec, ranks), dense_bytes)


def synthetic_load(model: Synthetic, ranks: int) -> Load:
    """The load of a synthetic model, started as its benchmark starts it."""
    tables, features, hotness = [], [], []
    for count, rows, dim, ids in model.tables:
        for _ in range(count):
            features += [len(tables)] * len(ids)
            hotness += ids
            tables.append(Table(f"t{len(tables)}", rows, dim))
    workload = Workload(
        tuple(tables),
        make_features(features, hotness),
        ranks,
        global_batch_size=BATCH_SIZE,
        state_bytes_per_element=4,
        dp_input=False,
    )
    sharding_plan = plan(workload, Limits(_COLUMN_SLICE_THRESHOLD), "memory_balanced")
    width = sum(tables[t].dim for t in features)
    if model.pooling:
        width = -(-width // model.pooling)
    layers = (width + model.num_numerical, *model.mlp, 1)
    weights = sum((n + 1) * m for n, m in itertools.pairwise(layers))
    return load_of(sharding_plan, 4 * weights)
