"""Models of `serving`: one trained DLRM, deployed in several ways into one repository."""

import dataclasses
import os
import shutil
from pathlib import Path

from distributed_embeddings.ops import kernels

import dlrm
from deployment.deploy.deploy_options import LocalOptions
from deployment.deploy.deployer import deploy
from deployment.model.served_model import interface_of
from deployment.model.trained_model import open_checkpoint, restored_model
from deployment.serving.interface import Interface, ServedTensor
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    CPU,
    Batching,
    Instances,
    model_config,
    write_config,
)

# Sizes of tables as they occur in click logs: some large ones, many small ones.
CARDINALITIES = (
    *(200_000, 200_000, 150_000, 100_000, 100_000, 50_000, 40_000, 20_000, 12_000, 10_000),
    *(7_000, 5_000, 2_000, 1_500, 1_000, 500, 300, 100, 60, 30, 25, 20, 10, 10, 4, 3),
)
SIZES = {
    "paper": ("--embedding_dim=128", "--bottom_mlp_dims=512,256,128")
    + ("--top_mlp_dims=1024,1024,512,256,1",),
    "demo": ("--embedding_dim=16", "--bottom_mlp_dims=64,16", "--top_mlp_dims=128,64,1"),
}
MAX_BATCH_SIZE = 2048
PLAIN = "plain SavedModel"
_PLAIN_MODEL = Path(__file__).parents[1] / "peers/plain_saved_model.py"  # for Triton alone

# Our sides, and how each is deployed.
DEPLOYED = {
    "fp32": {"monolithic": True},
    "bf16": {"monolithic": True, "precision": "bf16"},
    "fp32, ensemble": {},
    "fp32, int8 tables": {"monolithic": True, "quantize_tables": "int8", "check_rows": 20_000},
}

EXACT = ("fp32", "fp32, ensemble")  # float32 scores of exact tables


def model_name(size: str, side: str) -> str:
    return f"{size}_{side}".replace(", ", "_").replace(" ", "_")


def train(size: str, folder: Path) -> Path:
    """Trains some steps on generated clicks; returns the folder of the checkpoint."""
    checkpoint = folder / f"checkpoint_{size}"
    rows = ",".join(map(str, CARDINALITIES))
    data = ("--dataset_type=synthetic", f"--synthetic_dataset_cardinalities={rows}")
    length = ("--synthetic_dataset_train_batches=10", "--synthetic_dataset_valid_batches=5")
    flags = ("--batch_size=2048", "--evals_per_epoch=0", "--seed=1", "--cpu", "--learning_rate=1")
    where = (f"--run_dir={folder / 'run'}", f"--save_checkpoint_path={checkpoint}")
    status = dlrm.main(["dlrm", *data, *length, *flags, *where, *SIZES[size]])
    if status:
        raise RuntimeError(f"the training ended with status {status}")
    return checkpoint


def deploy_all(size: str, checkpoint: Path, repository: Path) -> Interface:
    """Deploys all sides; returns what requests look like."""
    for side, options in DEPLOYED.items():
        settings = {"model_name": model_name(size, side), "max_batch_size": MAX_BATCH_SIZE}
        print(deploy(LocalOptions(str(checkpoint), repository, **settings, **options)))
    trained = open_checkpoint(str(checkpoint))
    interface = interface_of(trained)
    deploy_plainly(trained, interface.inputs, repository / model_name(size, PLAIN))
    return interface


def deploy_plainly(trained, inputs: tuple[ServedTensor, ...], folder: Path) -> None:
    """The peer: the trained Keras model with a signature, saved, and a few lines around it."""
    import tensorflow as tf

    # A plain SavedModel needs nothing but TensorFlow where it is served.
    config = trained.config.replace(interaction="dot_tensorflow")
    with kernels.disabled():
        model = restored_model(dataclasses.replace(trained, config=config))
    num_features = len(trained.shape.feature_names)

    class Plain(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec([None, *t.dims], t.dtype, t.name) for t in inputs]
        )
        def score(self, numerical_features, categorical_features):
            ids = tuple(tf.split(categorical_features, num_features, axis=1))
            return {"scores": tf.sigmoid(model((numerical_features, ids)))}

    plain = Plain()
    plain.variables_of_model = model.variables
    with kernels.disabled():
        tf.saved_model.save(plain, str(folder / "1/saved_model"), plain.score)
    shutil.copy(_PLAIN_MODEL, folder / "1/model.py")
    config = model_config(
        folder.name,
        {"backend": "python"},
        inputs,
        [ServedTensor("scores", "float32", (1,))],
        Batching(MAX_BATCH_SIZE, dynamic=True, max_queue_delay_us=0),
        Instances(CPU, 1),
        parameters={"EXECUTION_ENV_PATH": os.path.abspath(".venv")},
    )
    write_config(config, folder / CONFIG_FILE)
