"""Who may import whom (docs/architecture.md), read from the source."""

import ast
from pathlib import Path

import pytest

# room -> rooms of ours that it may import, beside itself.
ALLOWED = {
    "dlrm.py": {"main", "ranking"},
    "dcnv2.py": {"main", "ranking"},
    "sim.py": {"main", "sequential"},
    "ncf.py": {"main", "collaborative"},
    "ranking.py": {"main", "recipe_parts", "config", "nn", "dataloading", "runtime"},
    "sequential.py": {"main", "recipe_parts", "config", "nn", "dataloading", "runtime"},
    "collaborative.py": {"main", "recipe_parts", "config", "nn", "dataloading", "runtime"},
    "recipe_parts.py": {"config", "nn", "dataloading"},
    "main.py": {"training", "presets", "path_checks", "config", "nn", "dataloading", "runtime"},
    "path_checks.py": {"config", "flag_definitions", "dataloading", "runtime"},
    "presets.py": {"flag_definitions"},
    "training.py": {"config", "nn", "runtime"},
    "config.py": {"presets", "flag_definitions", "flag_rules"},
    "flag_rules.py": {"flag_definitions"},
    "flag_definitions.py": set(),
    "runtime": {"config"},
    "nn": {"runtime"},
    "nn/embedding": {"runtime", "nn.keras", "nn.precision"},
    "dataloading": set(),
    "preproc": {
        "dataloading.command_line",
        "dataloading.duckdb_files",
        "dataloading.failed_writes",
        "dataloading.feature_spec",
        "dataloading.output_folder",
        "dataloading.sequence_tfrecord_writer",
        "dataloading.unseen_items",
    },
    "tensorflow-dot-based-interact": set(),
    "deployment": {
        *("ranking", "sequential", "collaborative", "recipe_parts", "main"),
        *("config", "nn", "dataloading", "runtime"),
    },
    "deployment/serving": set(),
    "benchmarks": {
        "deployment",
        "dlrm",
        "main",
        "training",
        "config",
        "nn",
        "dataloading",
        "runtime",
        "preproc",
        "ranking",
        "sequential",
        "collaborative",
        "recipe_parts",
        "sim",
        "ncf",
    },
}
OURS = {Path(room).parts[0].removesuffix(".py") for room in ALLOWED} | {"tests"}
SPARK = tuple(
    f"preproc/criteo/spark_{part}.py" for part in ("job", "session", "lines", "blocks", "tasks")
)
NVTABULAR = tuple(
    f"preproc/{file}.py"
    for file in ("nvtabular_session", "criteo/nvtabular_engine", "amazon_books/nvtabular_engine")
)
# Imported in exactly one place each, because they may be absent; and in what measures them.
HOMES = {
    "horovod": ("runtime/distributed.py", "runtime/horovodrun.py"),
    "dllogger": ("runtime/dlll.py",),
    "distributed_embeddings": ("nn/embedding/merlin.py",),
    "tensorflow_dot_based_interact": ("nn/interaction.py", "benchmarks/dot_interaction.py"),
    "pyspark": (*SPARK, "benchmarks/spark_cluster.py"),
    "py4j": SPARK,
    "nvtabular": NVTABULAR,
    "pandas": (*NVTABULAR, "benchmarks/pandas_interactions.py"),
    "dask": NVTABULAR,
    "tf2onnx": ("deployment/onnx_model.py",),
    "onnx": tuple(
        f"deployment/{part}.py"
        for part in ("onnx_model", "onnx_lookups", "hps_dense", "gpu_models")
    ),
    "onnxruntime": ("deployment/serving/onnx_session.py",),
    "openvino": ("deployment/serving/dense.py",),
    "grpc": ("deployment/client.py",),
    "tritonclient": tuple(
        f"deployment/{part}.py" for part in ("client", "triton_config", "tensorrt", "serve")
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
        ("nn/model.py", "dataloading.batch"),
        ("runtime/device.py", "nn.model"),
        ("dataloading/raw_binary.py", "runtime.device"),
        ("nn/embedding/layer.py", "nn.model"),
        ("preproc/criteo/cli.py", "dataloading.raw_binary"),
        ("main.py", "dlrm"),
        ("nn/model.py", "tensorflow.python.ops"),
        ("nn/model.py", "horovod.tensorflow"),
        ("nn/model.py", "tensorflow_dot_based_interact.python.ops"),
        ("tensorflow-dot-based-interact/setup.py", "nn.interaction"),
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
