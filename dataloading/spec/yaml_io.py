"""YAML as a feature spec needs it: strict when read, atomic when written. No TensorFlow here."""

from pathlib import Path
from typing import Any

import yaml

from runtime.files.outputs import output_file


class _StrictLoader(yaml.SafeLoader):
    """The safe loader that also refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first_line: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            line = key.start_mark.line + 1
            if key.value in first_line:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key '{key.value}' is there twice (lines "
                    f"{first_line[key.value]} and {line}); remove one"
                )
            first_line[key.value] = line
        return super().construct_mapping(node, deep)


class _PlainDumper(yaml.SafeDumper):
    """The safe dumper without `&id001` aliases and with list items indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def read_mapping(path: Path) -> dict[str, Any]:
    """Returns the mapping that a YAML file holds.

    Raises:
        ValueError: the file does not exist, is not YAML, has a key twice, or holds something else
            than a mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except FileNotFoundError:
        raise ValueError(f"{path}: the file does not exist") from None
    # ValueError: bytes that are not UTF-8, or a date that does not exist.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, not a mapping of sections")
    return content


def dump_mapping(content: dict[str, Any]) -> bytes:
    """Returns `content` as YAML."""
    text: str = yaml.dump(content, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True)
    return text.encode()


def write_mapping(path: Path, content: dict[str, Any]) -> None:
    """Writes `content` under `path` in one step: readers see the old file or the whole new one."""
    with output_file(path) as stream:
        stream.write(dump_mapping(content))
