"""Import rules (docs/explanation/architecture.md), complexity limits and names in the source."""

import ast
import functools
import importlib.util
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.sections.optimizer import OPTIMIZERS
from recipes.registry import BY_NAME

ROOT = Path(__file__).resolve().parents[1]
# package or root module -> packages and modules that it may import, in addition to itself.
EMBEDDINGS = "distributed_embeddings"
RECIPES = {"recipes", "config", "training", "nn", "dataloading", "runtime", EMBEDDINGS}
RECIPES |= {"preproc.encoding"}
SCRIPTS = {file.name for file in ROOT.glob("*.py")} - {"conftest.py"}
FAMILIES = {d.family.build.__module__.split(".")[1] for d in BY_NAME.values()}  # folders of recipes
ALLOWED = {
    **{script: {"main", "recipes"} for script in SCRIPTS},
    **{f"recipes/{family}": RECIPES - {"training"} for family in FAMILIES},
    "main.py": RECIPES,
    "setup_environment.py": set(),
    "recipes": RECIPES | {"deployment"},
    "recipes/search": RECIPES,
    "recipes/baseline": RECIPES - {"training"}
    | {"deployment.model.trained_model", "training.checkpoints"},
    "training": RECIPES - {"recipes", "training"} | {"recipes.recipe"},
    "config": set(),
    "nn": {EMBEDDINGS, "runtime.checkpoint.weight"},
    "nn/layers": {"distributed_embeddings.seeds", "distributed_embeddings.keras"},
    "nn/optim": {EMBEDDINGS},
    "distributed-embeddings": {EMBEDDINGS},
    "distributed-embeddings/distributed_embeddings/planner": {f"{EMBEDDINGS}.planner"},
    "distributed-embeddings/distributed_embeddings/ops": {
        f"{EMBEDDINGS}.ops",
        f"{EMBEDDINGS}.precision",
    },
    "distributed-embeddings/distributed_embeddings/exchange": {
        f"{EMBEDDINGS}.exchange",
        f"{EMBEDDINGS}.ops",
        f"{EMBEDDINGS}.planner",
        f"{EMBEDDINGS}.precision",
    },
    "dataloading": {"config.command", "config.flag", "runtime.cli", "runtime.files"},
    "dataloading/spec": {"runtime.files"},
    "dataloading/pipeline": {"dataloading.spec"},
    "dataloading/formats": {"dataloading.spec", "dataloading.pipeline", "runtime.files"},
    "preproc": {
        "config.command",
        "config.criteo_multi_hot",
        "config.flag",
        "dataloading.formats.sequence_tfrecord.writer",
        "dataloading.histories",
        "dataloading.interactions",
        "dataloading.keys",
        "dataloading.spec",
        "dataloading.synthetic",
        "runtime.cli",
        "runtime.files",
        "runtime.readable",
    },
    "preproc/checks": {
        "dataloading.spec",
        "preproc.encoding",
        "preproc.engines",
        "preproc.fitting",
    },
    "preproc/encoding": set(),
    "original": set(),
    "runtime": {"config.command", "config.flag", EMBEDDINGS},
    "runtime/files": set(),
    "runtime/logs": {"config.command", "config.flag", "dataloading.spec", "runtime", EMBEDDINGS},
    "deployment": {
        "recipes",
        "config",
        "nn",
        "dataloading",
        "preproc.encoding",
        "runtime",
        EMBEDDINGS,
    },
    "deployment/predict": {
        "config.command",
        "config.flag",
        "dataloading",
        "deployment",
        "preproc.checks",
        "preproc.encoding",
        "preproc.engines",
        "preproc.sources",
        "runtime",
    },
    "deployment/serving": {"preproc.encoding", "runtime.hardware.available_memory"},
    "tensorflow-dot-based-interact": set(),
    "op_build": set(),
    "docs": {"config", "recipes.registry"},
    "benchmarks": {"deployment", "preproc", *(name.removesuffix(".py") for name in SCRIPTS)}
    | RECIPES,
}
OURS = {Path(room).parts[0].removesuffix(".py") for room in ALLOWED} | {"tests", EMBEDDINGS}
SPARK = (
    "preproc/engines/spark/session.py",
    "preproc/engines/spark/hadoop_store.py",
    "preproc/engines/spark/backend.py",
    "preproc/engines/spark/source_parts.py",
    "preproc/criteo/engines/spark/spark_engine.py",
)
NVTABULAR = ("preproc/histories/engines/nvtabular_engine.py",)
TORCH_PEERS = (
    "benchmarks/harness/torch_training.py",
    "benchmarks/peers/torch_bags.py",
    "benchmarks/peers/torch_dlrm.py",
    "benchmarks/peers/torch_ncf.py",
    "benchmarks/peers/torch_sequence.py",
    "benchmarks/peers/torchrec_dlrm.py",
)
# Packages that may be absent, and the parser of command lines: the files that may import them.
HOMES = {
    "argparse": ("config/command.py", "setup_environment.py"),
    "horovod": (
        "distributed-embeddings/distributed_embeddings/collectives/horovod_modules.py",
        "runtime/cluster/horovodrun.py",
    ),
    "torch": ("runtime/files/torch_file.py", *TORCH_PEERS),
    "mlflow": ("runtime/logs/mlflow_tracking.py",),
    "mlperf_logging": ("runtime/logs/mlperf.py",),
    "optuna": ("recipes/search/study.py",),
    "lightgbm": ("recipes/baseline/gradient_boosting.py",),
    "scipy": ("recipes/baseline/logistic.py",),
    "sklearn": ("recipes/baseline/logistic.py",),
    "hypothesis": (),
    "tensorflow_dot_based_interact": (
        "nn/layers/fused_op.py",
        "benchmarks/dot_interaction.py",
        "tensorflow-dot-based-interact/tensorflow_dot_based_interact/__init__.py",
    ),
    "dataloading_kernels": ("dataloading/pipeline/gather.py",),
    "pyspark": SPARK,
    "py4j": SPARK[:1],
    "nvtabular": NVTABULAR,
    "pandas": NVTABULAR,
    "dask": NVTABULAR,
    "tf2onnx": ("deployment/artifacts/onnx_model.py",),
    "onnx": (
        "deployment/artifacts/onnx_model.py",
        "deployment/triton/gpu_models.py",
    ),
    "onnxruntime": ("deployment/serving/dense.py",),
    "openvino": ("deployment/serving/dense.py",),
    "grpc": ("deployment/client/client.py",),
    "tritonclient": (
        "deployment/client/client.py",
        "deployment/triton/config_pbtxt.py",
        "deployment/triton/tensorrt.py",
        "deployment/serve/__main__.py",
    ),
}


def room_of(file: str) -> str:
    return max((room for room in ALLOWED if file == room or file.startswith(room + "/")), key=len)


def imports(file: str, tree: ast.Module) -> list[str]:
    """Modules that a file imports, `from a import b` as a.b."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written in full"
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


def test_imports(root):
    problems = [
        problem
        for file, tree in product(root).items()
        if file != "conftest.py"
        for problem in violations(file, imports(file, tree))
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("nn/ctr/model.py", "dataloading.pipeline.batch"),
        ("runtime/hardware/device.py", "nn.ctr.model"),
        ("runtime/hardware/device.py", "config.Config"),
        ("dataloading/formats/raw_binary.py", "runtime.hardware.device"),
        ("distributed-embeddings/distributed_embeddings/layers/embedding.py", "nn.ctr.model"),
        ("distributed-embeddings/distributed_embeddings/planner/plan.py", "distributed_embeddings"),
        ("dataloading/spec/feature_spec.py", "distributed_embeddings"),
        ("preproc/criteo/cli.py", "dataloading.formats.raw_binary"),
        ("main.py", "dlrm"),
        ("nn/ctr/model.py", "tensorflow.python.ops"),
        ("nn/ctr/model.py", "horovod.tensorflow"),
        ("nn/ctr/model.py", "tensorflow_dot_based_interact.python.ops"),
        ("tensorflow-dot-based-interact/setup.py", "nn.layers.interaction"),
    ],
)
def test_violations(file, name):
    assert violations(file, [name])


def test_described_packages(root):
    text = (root / "docs/explanation/architecture.md").read_text()
    for room in ALLOWED.keys() - SCRIPTS - {f"recipes/{family}" for family in FAMILIES}:
        assert f"`{room}" in text, room


def test_import_of_a_recipe(root, run_script):
    """Importing a recipe loads neither TensorFlow nor anything that parses a command line."""
    done = run_script(
        "-c",
        "import sys, dlrm, main, config, recipes.api; assert 'tensorflow' not in sys.modules",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


# Limits of functions and folders.
MAX_COMPLEXITY, MAX_LINES, MAX_MODULES = 20, 60, 12
# Triton looks for a class of this name in every model in Python. Optimizers of tables are there for
# the toolkit's trainer and for Keras.
SHARED_CLASS_NAMES = {"TritonPythonModel", "RowWiseAdagrad", "LazyAdam"}
UNCLEAR_NAMES = {"asked", "begun", "found", "given", "held", "made", "of", "said", "told"}
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension)


@functools.cache
def product(root: Path) -> dict[str, ast.Module]:
    """Syntax trees of all Python files that are not tests, by path."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.check_output(command, cwd=root, text=True).splitlines()
    return {
        name: ast.parse((root / name).read_text())
        for name in names
        if "tests" not in Path(name).parts and (root / name).is_file()
    }


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity, nested functions included."""
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + operators + sum(isinstance(node, BRANCHES) for node in nodes)


def complex_functions(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            num_lines = node.end_lineno - node.lineno + 1
            if complexity(node) > MAX_COMPLEXITY or num_lines > MAX_LINES:
                yield f"{file} {node.name}"


def unclear_names(tree: ast.Module) -> int:
    return sum(
        (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id in UNCLEAR_NAMES
        )
        or (isinstance(node, ast.arg) and node.arg in UNCLEAR_NAMES)
        for node in ast.walk(tree)
    )


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Groups of modules, each of which reaches all others of its group."""

    @functools.cache
    def reached(start: str) -> frozenset[str]:
        reachable, pending = set(), [start]
        while pending:
            new = graph[pending.pop()] - reachable
            reachable |= new
            pending += new
        return frozenset(reachable)

    groups = ({b for b in reached(a) if a in reached(b)} for a in graph)
    return {tuple(sorted(group)) for group in groups if len(group) > 1}


def module_graph(root: Path) -> dict[str, set[str]]:
    """Imports between modules of the product, those within functions too."""
    modules = {
        file.removeprefix("distributed-embeddings/")
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", "."): file
        for file in product(root)
    }
    graph = {}
    for module, file in modules.items():
        names = imports(file, product(root)[file])
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (targets & modules.keys()) - {module}
    return graph


def test_complexity(root):
    functions = {
        function
        for file, tree in product(root).items()
        for function in complex_functions(file, tree)
    }
    assert functions == set()


def test_complexity_of_a_function():
    source = "def f(a, b):\n  if a and b or a: return [i for i in a if i]\n  return 1 if b else 2"
    assert complexity(ast.parse(source)) == 6


def test_class_names(root):
    files = defaultdict(set)
    for file, tree in product(root).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(file)
    duplicates = {name: sorted(files[name]) for name in files if len(files[name]) > 1}
    assert {n: where for n, where in duplicates.items() if n not in SHARED_CLASS_NAMES} == {}


def test_variable_names(root):
    assert [file for file, tree in product(root).items() if unclear_names(tree)] == []


def bare_arrays(tree: ast.AST) -> list[int]:
    """Lines of annotations with `np.ndarray` alone."""
    annotations = []
    for node in ast.walk(tree):
        annotations += [getattr(node, name, None) for name in ("annotation", "returns")]
    nodes = [node for a in annotations if isinstance(a, ast.AST) for node in ast.walk(a)]
    with_arguments = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr == "ndarray"
        and id(node) not in with_arguments
    ]


def test_array_types(root):
    """NumPy 1's types, of the oldest supported versions, need arguments; mypy sees NumPy 2's."""
    settings = (root / "pyproject.toml").read_text()
    names = ast.literal_eval(re.search(r"^files = (\[.*\])$", settings, re.MULTILINE)[1])
    typed = tuple(name if name.endswith(".py") else f"{name}/" for name in names)
    lines = {f: bare_arrays(tree) for f, tree in product(root).items() if f.startswith(typed)}
    assert len(lines) > 100
    assert {file: numbers for file, numbers in lines.items() if numbers} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a: np.ndarray, b: list[np.ndarray]) -> NDArray[np.int64]: ...", [1, 1]),
        ("x: np.ndarray[Any, Any] = np.ndarray(3)", []),
    ],
)
def test_bare_arrays(source, expected):
    assert bare_arrays(ast.parse(source)) == expected


def test_folder_sizes(root):
    modules = (Path(file) for file in product(root))
    sizes = Counter(str(path.parent) for path in modules if path.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES} == {}


# Files that may have names of others: entry points, names of NVIDIA's, and flags of a subject.
ANY_NAME = r"(original|config/sections|distributed-embeddings/(examples|.*/python))/.*"
# Files of one name that do the same job for parallel families, formats or commands.
ALIKE = (
    r"(.*/)?(__init__|__main__|setup|options)\.py",
    r"(config|recipes/\w+)/(family|build|flags|preset|rankings|shape)\.py",
    r"nn/(ctr|ncf|sequence)/(model|sizes)\.py",
    r"preproc/(criteo|criteo/output|criteo/multi_hot|histories|interactions)/(prepare|data_set)\.py",
    r"dataloading/.*/(dataset|writer)\.py",
    r"preproc/(criteo/)?engines/spark/tasks\.py",
)


def test_file_names(root):
    """Two files of one name do the same job."""
    jobs = defaultdict(set)
    for file in product(root):
        if not re.fullmatch(ANY_NAME, file):
            alike = (pattern for pattern in ALIKE if re.fullmatch(pattern, file))
            jobs[Path(file).name].add(next(alike, file))
    assert {name: sorted(files) for name, files in jobs.items() if len(files) > 1} == {}


NAMES = {*BY_NAME, *FAMILIES, *OPTIMIZERS}


def comparisons_of_recipes(tree: ast.Module) -> Iterator[int]:
    """Yields lines that compare something with the name of a recipe, family or optimizer, or with
    its object; the types of models (`model_type`) have such names, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and "model_type" not in ast.unparse(node):
            operands = [each for side in (node.left, *node.comparators) for each in ast.walk(side)]
            words = {n.value for n in operands if isinstance(n, ast.Constant)}
            words |= {n.id.lower() for n in operands if isinstance(n, ast.Name) and n.id.isupper()}
            if words & NAMES:
                yield node.lineno


def test_comparisons_of_recipes(root):
    """No other file compares names of recipes, families or optimizers."""
    lines = {
        file: list(comparisons_of_recipes(tree))
        for file, tree in product(root).items()
        if not file.startswith(
            (
                *(f"recipes/{family}/" for family in FAMILIES),
                *("nn/", "preproc/", "benchmarks/", "distributed-embeddings/"),
            )
        )
    }
    assert {file: numbers for file, numbers in lines.items() if numbers} == {}


@pytest.mark.parametrize(
    "source",
    [
        'config.recipe == "dlrm"',
        'recipe not in ("dlrm", "dcnv2")',
        "flags.flag_set in RANKING",
        "config.family is SEQUENTIAL",
        'x = 1 if family.name != "ncf" else 2',
        'flags.optimizer == "adam"',
    ],
)
def test_comparison_of_a_recipe(source):
    assert list(comparisons_of_recipes(ast.parse(source))) == [1]


def test_modules_of_families():
    for definition in BY_NAME.values():
        for name in filter(None, (definition.family.baseline, definition.family.serving)):
            assert importlib.util.find_spec(name), name


def test_circles(root):
    assert circles(module_graph(root)) == set()


def test_circles_of_a_graph():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(graph) == {("b", "c")}
