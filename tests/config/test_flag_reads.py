"""Every flag is read: a flag that no module uses is a bug."""

import ast
import dataclasses

from config.config import sections_of
from config.sections.optimizer import OPTIMIZERS
from recipes.registry import BY_NAME

SECTIONS = {pair for recipe in BY_NAME.values() for pair in sections_of(recipe.family).items()}
SECTION_OF_TYPE = {kind.__name__: section for section, kind in SECTIONS}
FLAGS = {(name, field.name) for name, kind in SECTIONS for field in dataclasses.fields(kind)}


def section_of(node, aliases):
    """Returns the section that an expression denotes: `config.run`, or a name assigned from it."""
    if isinstance(node, ast.Attribute) and node.attr in SECTION_OF_TYPE.values():
        return node.attr
    return aliases.get(ast.unparse(node)) if node is not None else None


def aliases_in(tree, aliases):
    """Returns the names that stand for a section: annotated parameters and assignments."""
    aliases = dict(aliases)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation).rpartition(".")[2]
            if kind in SECTION_OF_TYPE:
                aliases[node.arg] = SECTION_OF_TYPE[kind]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        (target,), value = node.targets, node.value
        pairs = [(target, value)]
        starred = any(
            isinstance(part, ast.Starred) for part in (*ast.walk(target), *ast.walk(value))
        )
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and not starred:
            pairs = list(zip(target.elts, value.elts, strict=True))
        for name, source in pairs:
            if section := section_of(source, aliases):
                aliases[ast.unparse(name)] = section
    return aliases


def flags_read_by(source, **aliases):
    """Returns (section, flag) of each read `config.<section>.<flag>` or `<alias>.<flag>`."""
    tree = ast.parse(source)
    aliases = aliases_in(tree, aliases)
    return {
        (section_of(node.value, aliases), node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    } & FLAGS


def test_reads_of_every_flag(root):
    reads = set()
    for folder in ("recipes", "training", "runtime", "deployment"):
        files = list(root.glob(f"{folder}/**/*.py"))
        assert files, f"{folder} has no modules: the search looks in the wrong place"
        reads |= {read for file in files for read in flags_read_by(file.read_text())}
    reads |= flags_read_by((root / "main.py").read_text())
    # Models know no flags: the optimizers take the section under this name, without its type.
    reads |= flags_read_by((root / "nn/optim/optimizers.py").read_text(), options="optimizer")
    options = [flag for kind in OPTIMIZERS.values() for flag in kind.options.values()]
    reads |= {("optimizer", flag) for flag in options}
    # Flags that config/ itself resolves into the values of others.
    own = {("family_flags", "opt_level"), ("run", "preset")}
    own |= {("original", "data_parallel_input"), ("original", "dot_interaction")}
    # Flags of NVIDIA's recipes without effect here.
    own |= {("original", name) for name in ("use_mde_embeddings", "concat_embedding")}
    own |= {("original", "save_input_signature"), ("family_flags", "disable_cache")}
    assert FLAGS - reads == own
