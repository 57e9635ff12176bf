"""YAML with the surprises taken out: no repeated keys, no aliases, no huge files; errors name line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harness.core.errors import ConfigError, MissingInputError

FOLDER = Path("configs")
MAX_BYTES = 1_000_000
"""A configuration is a page of text; more is a mistake or an attack on the parser."""


_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int")


class _StrictLoader(yaml.SafeLoader):
    """Refuses what SafeLoader accepts silently: of two equal keys it would keep the last, and aliases can blow up."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (`*name`) are not supported", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _KEY_TAGS:
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key_node.start_mark)
            key = key_node.value
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key `{key}` stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises MissingInputError or ConfigError with line and column."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        found = sorted(path.parent.glob("*.yaml")) or sorted(FOLDER.glob("*.yaml"))
        others = ", ".join(map(str, found)) or f"none in {path.parent} and {FOLDER}"
        raise MissingInputError(
            f"The configuration {path} cannot be read: {error.strerror}.",
            f"Name one with CONFIG=…; there are: {others}.",
        ) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes.", "A configuration is a page of YAML text.")
    try:
        data = yaml.load(content, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{path} is not valid YAML: {_where(error)}", "Compare it with configs/quickstart.yaml."
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no mapping of keys to values.", "Compare it with configs/quickstart.yaml.")
    return data


def _where(error: Exception) -> str:
    """`line 3, column 5: problem`."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."
    return f"{str(error).splitlines()[0]}."
