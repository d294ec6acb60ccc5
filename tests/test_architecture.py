"""Who may import whom (docs/architecture.md), read from the source."""

import ast
from pathlib import Path

import pytest

# package or root module -> packages and modules that it may import, in addition to itself.
RECIPES = {"recipes", "config", "training", "nn", "dataloading", "runtime"}
ALLOWED = {
    "dlrm.py": {"main", "recipes"},
    "dcnv2.py": {"main", "recipes"},
    "sim.py": {"main", "recipes"},
    "ncf.py": {"main", "recipes"},
    "main.py": RECIPES,
    "recipes": RECIPES - {"recipes", "training"},
    "training": {"recipes.recipe", "recipes.from_flags", "config", "nn", "dataloading", "runtime"},
    "config": set(),
    "nn": {"runtime"},
    "nn/layers": {"nn.keras", "nn.precision", "runtime"},
    "nn/optim": {"nn.embedding.exchange.gradients", "nn.keras", "nn.precision", "runtime"},
    "nn/embedding": {"nn.keras", "nn.precision", "runtime"},
    "nn/embedding/planner": set(),
    "dataloading": {"runtime.cli", "runtime.files"},
    "dataloading/spec": {"runtime.files"},
    "dataloading/pipeline": {"dataloading.spec"},
    "dataloading/formats": {"dataloading.spec", "dataloading.pipeline", "runtime.files"},
    "preproc": {
        "dataloading.formats.sequence_tfrecord.writer",
        "dataloading.interactions.unseen_items",
        "dataloading.spec",
        "dataloading.table_input",
        "runtime.cli",
        "runtime.files",
    },
    "runtime": {"config"},
    "runtime/files": set(),
    "runtime/cli.py": set(),
    "deployment": {"recipes", "config", "nn", "dataloading", "runtime"},
    "deployment/serving": set(),
    "tensorflow-dot-based-interact": set(),
    "benchmarks": {"deployment", "dlrm", "main", "ncf", "preproc", "sim"} | RECIPES,
}
OURS = {Path(room).parts[0].removesuffix(".py") for room in ALLOWED} | {"tests"}
SPARK = (
    "preproc/criteo/spark_job.py",
    *(
        f"preproc/criteo/engines/spark/{part}.py"
        for part in ("session", "lines", "blocks", "tasks")
    ),
)
NVTABULAR = tuple(
    f"preproc/{file}.py"
    for file in (
        "engines/nvtabular_session",
        "criteo/engines/nvtabular_engine",
        "amazon_books/engines/nvtabular_engine",
    )
)
# Packages that may be absent: the files that may import them.
HOMES = {
    "horovod": ("runtime/cluster/distributed.py", "runtime/cluster/horovodrun.py"),
    "dllogger": ("runtime/logs/dlll.py",),
    "distributed_embeddings": ("nn/embedding/merlin_api/backend.py",),
    "tensorflow_dot_based_interact": (
        "nn/layers/interaction.py",
        "benchmarks/dot_interaction.py",
    ),
    "pyspark": (*SPARK, "benchmarks/spark_cluster.py"),
    "py4j": SPARK,
    "nvtabular": NVTABULAR,
    "pandas": (*NVTABULAR, "benchmarks/pandas_interactions.py"),
    "dask": NVTABULAR,
    "tf2onnx": ("deployment/artifacts/onnx_model.py",),
    "onnx": (
        "deployment/artifacts/onnx_model.py",
        "deployment/artifacts/onnx_lookups.py",
        "deployment/triton/hps/dense.py",
        "deployment/triton/gpu_models.py",
    ),
    "onnxruntime": ("deployment/serving/onnx_session.py",),
    "openvino": ("deployment/serving/dense.py",),
    "grpc": ("deployment/client/client.py",),
    "tritonclient": (
        "deployment/client/client.py",
        "deployment/triton/config.py",
        "deployment/artifacts/tensorrt.py",
        "deployment/serve/__main__.py",
    ),
}


def sources(root: Path) -> list[Path]:
    found = [root / room for room in ALLOWED if room.endswith(".py")]
    for room in ALLOWED:
        if not room.endswith(".py"):
            found += (root / room).rglob("*.py")
    return sorted(set(found))


def room_of(file: str) -> str:
    return max((room for room in ALLOWED if file == room or file.startswith(room + "/")), key=len)


def imports(path: Path) -> list[str]:
    """Modules that a file imports, `from a import b` as a.b; main.py's __main__ part left out."""
    tree = ast.parse(path.read_text())
    if path.name == "main.py":
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def violations(file: str, names: list[str]) -> list[str]:
    room = room_of(file)
    own = room.removesuffix(".py").replace("/", ".")
    bad = []
    for name in names:
        allowed = {own, *ALLOWED[room]}
        within = any(name == a or name.startswith(a + ".") for a in allowed)
        if name.split(".")[0] in OURS and not within:
            bad.append(f"{file} imports {name}; {room} may import {sorted(ALLOWED[room])}")
        if name.startswith(("tensorflow.python", "keras.src")):
            bad.append(f"{file} imports internals: {name}")
        homes = HOMES.get(name.split(".")[0])
        if homes and file not in homes:
            bad.append(f"{file} imports {name}, which only {homes[0]} may")
    return bad


def test_imports_go_down_only(root):
    found = [
        problem
        for path in sources(root)
        for problem in violations(str(path.relative_to(root)), imports(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("nn/ctr/model.py", "dataloading.pipeline.batch"),
        ("runtime/hardware/device.py", "nn.ctr.model"),
        ("dataloading/formats/raw_binary.py", "runtime.hardware.device"),
        ("nn/embedding/layer.py", "nn.ctr.model"),
        ("preproc/criteo/cli.py", "dataloading.formats.raw_binary"),
        ("main.py", "dlrm"),
        ("nn/ctr/model.py", "tensorflow.python.ops"),
        ("nn/ctr/model.py", "horovod.tensorflow"),
        ("nn/ctr/model.py", "tensorflow_dot_based_interact.python.ops"),
        ("tensorflow-dot-based-interact/setup.py", "nn.layers.interaction"),
    ],
)
def test_the_rules_catch_violations(file, name):
    assert violations(file, [name])


def test_every_room_is_described(root):
    text = (root / "docs/architecture.md").read_text()
    for room in ALLOWED:
        assert f"`{room}" in text, room


def test_nothing_happens_at_import(root, run_script):
    """Importing a recipe loads neither TensorFlow nor anything that parses a command line."""
    done = run_script(
        "-c", "import sys, dlrm, dcnv2, main, config; assert 'tensorflow' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
