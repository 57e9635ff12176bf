"""Reads YAML strictly: no repeated keys, no aliases, no huge files; errors name line and column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from harness.core.errors import ConfigError, MissingInputError
from harness.core.safe_files import Limit, open_to_read
from harness.core.text import shortened

FOLDER = Path("configs")
MAX_BYTES = int(Limit.TEXT)


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,17})")
_NUMBER = re.compile(r"[-+]?([0-9][0-9_]*)(\.[0-9_]*)?([eE][-+]?[0-9]{1,4})?|[-+]?\.[0-9]+([eE][-+]?[0-9]{1,4})?")
_TOO_LARGE_OR_NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))

_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int")


_BOOLEAN = re.compile(r"(?i)true|false|yes|no|on|off")
_NOT_DATA = {
    "timestamp": "a date is not supported; put it in quotes",
    "merge": "a key must be a word",
    "binary": "`!!binary` is not supported",
}


class _StrictLoader(yaml.SafeLoader):
    """Refuses what SafeLoader accepts silently: of two equal keys it would keep the last, aliases can expand to huge
    data, and YAML 1.1 reads `010` as 8 and `1:30` as 90."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (`*name`) are not supported", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        if node is not None and node.tag not in _TAGS:
            kind = node.tag.rpartition(":")[2] or node.tag
            problem = _NOT_DATA.get(kind, f"could not determine a constructor for `{shortened(node.tag, 60)}`")
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        return int(self._plain(node, _INTEGER, "an integer, in decimal and without leading zeros").replace("_", ""))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        text = str(node.value)
        if _TOO_LARGE_OR_NOT_A_NUMBER.fullmatch(text):
            return float(text.replace(".", "", 1))
        return float(self._plain(node, _NUMBER, "a number, in decimal").replace("_", ""))

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        return self.bool_values[self._plain(node, _BOOLEAN, "true or false").lower()]

    @staticmethod
    def _plain(node: yaml.ScalarNode, form: re.Pattern[str], meant: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not form.fullmatch(node.value):
            text = shortened(str(node.value), 40)
            raise yaml.MarkedYAMLError(problem=f"`{text}` is not {meant}", problem_mark=node.start_mark)
        return str(node.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _KEY_TAGS:
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key_node.start_mark)
            key = key_node.value
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key `{key}`", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


for _name, _constructor in (
    ("int", _StrictLoader.construct_yaml_int),
    ("float", _StrictLoader.construct_yaml_float),
    ("bool", _StrictLoader.construct_yaml_bool),
):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _constructor)


def read(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises MissingInputError or ConfigError with line and column."""
    try:
        with open_to_read(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        beside = sorted(path.parent.glob("*.yaml")) or sorted(FOLDER.glob("*.yaml"))
        others = ", ".join(map(str, beside)) or f"none in {path.parent} and {FOLDER}"
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
