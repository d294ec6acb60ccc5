"""YAML as a feature spec needs it: strict when read, atomic when written. No TensorFlow here."""

from pathlib import Path
from typing import Any

import yaml

from runtime.files.atomic import atomic_file

# Ten thousand times the values of a feature spec with 100 features. A few hundred bytes of nested
# aliases can stand for more values than any memory holds.
_MAX_VALUES = 1_000_000


class _StrictLoader(yaml.SafeLoader):
    """The safe loader that also refuses repeated keys and documents whose aliases explode."""

    def construct_document(self, node: yaml.Node) -> Any:
        if _expanded_size(node, {}) > _MAX_VALUES:
            raise yaml.constructor.ConstructorError(
                problem=f"its aliases (*name) expand to more than {_MAX_VALUES:,} values"
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            first_line: dict[str, int] = {}
            for key_node, _ in node.value:
                if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                    continue
                line = key_node.start_mark.line + 1
                if key_node.value in first_line:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key '{key_node.value}' is there twice (lines "
                        f"{first_line[key_node.value]} and {line}); remove one",
                    )
                first_line[key_node.value] = line
        return super().construct_mapping(node, deep)


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Returns the number of nodes below a node, with each alias counted as what it stands for.

    Args:
        node: root of the (sub)tree.
        sizes: sizes of nodes that were visited, by their `id`.
    """
    if id(node) not in sizes:
        sizes[id(node)] = 1  # an alias of an ancestor ends here
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in children for part in pair]
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in children)
    return sizes[id(node)]


class _PlainDumper(yaml.SafeDumper):
    """The safe dumper without `&id001` aliases and with list items indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ValueError: the file is missing, a folder, empty, not text, not YAML, has a key twice, or
            holds something else than a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a folder; name the YAML file in it") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not YAML: not UTF-8 text ({error.reason})") from None
    try:
        content = yaml.load(text, Loader=_StrictLoader)
    except RecursionError:
        raise ValueError(f"{path}: is not YAML that can be read: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise ValueError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
    if content is None:
        raise ValueError(f"{path}: is empty; a feature spec is a mapping of sections")
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, not a mapping of sections")
    return content


def write_mapping(path: Path, content: dict[str, Any]) -> None:
    """Writes `content` under `path` in one step: readers see the old file or the whole new one."""
    text = yaml.dump(content, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True)
    with atomic_file(path) as stream:
        stream.write(text.encode())
