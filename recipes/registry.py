"""Built-in recipes, with the defaults and flag names of NVIDIA's recipes that they replace."""

from recipes import collaborative, ctr, sequential
from recipes.definition import Definition

DLRM = Definition("dlrm", ctr.build, aliases=ctr.ALIASES, report_plan=ctr.report_plan)
DCNV2 = Definition(
    "dcnv2",
    ctr.build,
    # Defaults that differ from DLRM: cross layers, and Adam in place of SGD.
    {
        "interaction": "cross",
        "optimizer": "adam",
        "learning_rate": 0.0001,
        "warmup_steps": 100,
    },
    ctr.ALIASES,
    report_plan=ctr.report_plan,
)
SIM = Definition(
    "sim",
    sequential.build,
    {
        "embedding_dim": "16",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "warmup_steps": 0,
        "decay_steps": 0,
        "epochs": 3,
        "batch_size": 131072,
        "valid_batch_size": None,
        "prefetch_batches": 10,
        "print_freq": 10,
        "warmup_batches": 20,
        "affinity": "socket_unique_interleaved",
        "seed": -1,
        "loss_scale": "dynamic",
    },
    {
        "dataset_dir": "dataset_path",
        "global_batch_size": "batch_size",
        "lr": "learning_rate",
        "prefetch_train_size": "prefetch_batches",
        "results_dir": "run_dir",
        "benchmark_warmup_steps": "warmup_batches",
        "affinity=single": "affinity=socket_single",
        "affinity=single_unique": "affinity=socket_single_unique",
    },
    report_plan=sequential.report_plan,
)
NCF = Definition(
    "ncf",
    collaborative.build,
    {
        "optimizer": "adam",
        "learning_rate": 0.0045,
        "beta1": 0.25,
        "beta2": 0.5,
        "epsilon": 1e-8,
        "warmup_steps": 0,
        "decay_steps": 0,
        "epochs": 30,
        "batch_size": 2**20,
        "valid_batch_size": 2**20,
        "amp": None,
        "loss_scale": "dynamic",
    },
    {
        "data": "dataset_path",
        "feature_spec_file": "feature_spec",
        "e": "epochs",
        "b": "batch_size",
        "f": "factors",
        "n": "negative_samples",
        "l": "learning_rate",
        "k": "topk",
        "s": "seed",
        "t": "threshold",
        "b1": "beta1",
        "b2": "beta2",
        "eps": "epsilon",
        "load_checkpoint_path": "restore_checkpoint_path",
        "checkpoint_path": "restore_checkpoint_path",
        "mode=test": "mode=eval",
    },
    report_plan=collaborative.report_plan,
)

BY_NAME = {definition.name: definition for definition in (DLRM, DCNV2, SIM, NCF)}
