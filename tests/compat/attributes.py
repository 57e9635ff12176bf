"""Which attributes of TensorRT a source file uses, and of what: by its syntax alone, so that no GPU is needed.

The meaning of a name is followed from `import tensorrt`, through plain assignments and calls whose result's class is
known, to the objects that functions are handed under the names of HANDED.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MODULE = "tensorrt"

RESULTS = {
    "create_builder_config": "IBuilderConfig",
    "create_engine_inspector": "EngineInspector",
    "create_execution_context": "IExecutionContext",
    "create_network": "INetworkDefinition",
    "create_optimization_profile": "IOptimizationProfile",
    "create_timing_cache": "ITimingCache",
    "deserialize_cuda_engine": "ICudaEngine",
    "get_error": "ParserError",
    "get_input": "ITensor",
    "get_layer": "ILayer",
    "get_output": "ITensor",
    "get_timing_cache": "ITimingCache",
    "make_network": "INetworkDefinition",  # our own, harness/backends/tensorrt/versions.py
}
"""Function → class of what it returns."""

HANDED = {
    "builder": "Builder",
    "config": "IBuilderConfig",
    "network": "INetworkDefinition",
    "layer": "ILayer",
    "tensor": "ITensor",
    "engine": "ICudaEngine",
    "error": "ParserError",
}
"""Name of a parameter of type Any, or of a loop's variable → class of what it is given."""


@dataclass(frozen=True)
class Use:
    """One attribute of the module (owner "tensorrt") or of a class; guarded: only where this version has flags."""

    line: int
    owner: str
    name: str
    guarded: bool

    def __str__(self) -> str:
        return f"line {self.line}: {self.owner}.{self.name}"


def used(source: str) -> list[Use]:
    """Every use in a file, in the order of its lines."""
    tree = ast.parse(source)
    names = _imported(tree)
    # What a method keeps on `self` is known in every other method.
    kept = dict(_assigned(ast.walk(tree), names, own=True))
    result: set[Use] = set()
    for function in _functions(tree):
        handed = [*_untyped(function), *(_loop_variables(function) if names else ())]
        local = {name: HANDED[name] for name in handed if name in HANDED}
        known = {**names, **kept, **local}
        # One by one: what is assigned later may be made of what was assigned before.
        known.update(_assigned(ast.walk(function), known, own=False))
        last = _flags_only_from(function)
        result |= {
            Use(node.lineno, owner, node.attr, last is not None and node.lineno > last)
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and (owner := _owner(node.value, known)) and node.attr[:1] != "_"
        }
    result |= {
        Use(node.lineno, owner, node.attr, guarded=False)
        for statement in tree.body
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and (owner := _owner(node.value, names))
    }
    return sorted(result, key=lambda use: (use.line, use.owner, use.name))


def missing(uses: Iterable[Use], offered: Mapping[str, Iterable[str]], strongly_typed: bool) -> list[Use]:
    """Uses that a version does not have. offered: class → its names; under "tensorrt" those of the module."""
    return [
        use
        for use in uses
        if use.owner in offered and use.name not in offered[use.owner] and not (strongly_typed and use.guarded)
    ]


def unknown_owners(uses: Iterable[Use], offered: Mapping[str, Iterable[str]]) -> set[str]:
    """Classes that a version has under no name: nothing of theirs would be checked."""
    return {use.owner for use in uses} - set(offered)


def _imported(tree: ast.Module) -> dict[str, str]:
    return {
        alias.asname or alias.name: MODULE
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == MODULE
    }


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions and methods; what is in a class's head is none of them and uses nothing."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _untyped(function: ast.FunctionDef) -> Iterator[str]:
    """Parameters annotated `Any`, which is how objects of a library without types are handed on."""
    for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
        if argument.annotation is not None and ast.unparse(argument.annotation) == "Any":
            yield argument.arg


def _loop_variables(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            yield node.target.id


def _assigned(nodes: Iterable[ast.AST], known: Mapping[str, str], own: bool) -> Iterator[tuple[str, str]]:
    """(name, what it means) of plain assignments; own: those to `self.<name>`, else those to a name.

    `layer.__class__ = …`, which gives the bindings' base classes their type, assigns to `layer`.
    """
    for node in nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "__class__":
            target = target.value
        if isinstance(target, ast.Attribute if own else ast.Name) and (owner := _owner(node.value, known)):
            yield ast.unparse(target), owner


def _owner(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """The class, or the module, that an expression means; None where that is not known."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        made = _owner(node.func, known) if isinstance(node.func, ast.Attribute) else None
        return RESULTS.get(name) or made
    text = ast.unparse(node)
    if text in known:
        return known[text]
    if isinstance(node, ast.Attribute) and _owner(node.value, known) == MODULE:
        return node.attr
    return None


def _flags_only_from(function: ast.FunctionDef) -> int | None:
    """Line after which a function runs only where flags choose the precision; None: nowhere in it.

    That is what follows an `if strongly_typed():` that always leaves.
    """
    for statement in function.body:
        if (
            isinstance(statement, ast.If)
            and ast.unparse(statement.test).endswith("strongly_typed()")
            and not ast.unparse(statement.test).startswith("not ")
            and isinstance(statement.body[-1], (ast.Return, ast.Raise))
        ):
            return statement.end_lineno
    return None
