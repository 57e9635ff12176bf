"""Names of C++ kernels as a person would say them (pure)."""

from __future__ import annotations

import re

_NAMESPACE = re.compile(r"\(anonymous namespace\)::|\b[a-z_]\w*::")
_BASE = re.compile(r"\w+")
_TOLD_BY = re.compile(r"\b(?:OP_\w+|\w*Functor\w*|\w+_kernel_(?:cuda|impl)|\w+KernelImpl)\b")
"""What an elementwise kernel computes stands among its template arguments, named in one of these ways."""
_ENTRY = re.compile(r"(?:Kernel2?|device_kernel)<(\w+)")
"""CUTLASS starts every kernel through one function; which one it is stands in the first template argument."""
_SAID_BY_ALL = re.compile(r"_execute\w*_kernel__\w+$")
"""How cuDNN's kernels end, behind the tile sizes that tell them apart."""
_HASHED = re.compile(r"^## (Call CompiledFxGraph) \w+ ##$")
"""Inductor's range around a compiled graph, with the hash of its code."""


def kernel_name(name: str) -> str:
    """`void lib::elementwise<4, lib::OP_Add<half>>(int, …)` → `elementwise<OP_Add>`; others without common ends.

    A signature runs to hundreds of characters, and its end, arguments, is the same for many kernels.
    """
    signature = name.removeprefix("void ")
    if signature == name:
        return _HASHED.sub(r"\1", _SAID_BY_ALL.sub("", name))
    plain = _NAMESPACE.sub("", signature)
    if entry := _ENTRY.match(plain):
        return entry[1]
    base = _BASE.match(plain)
    if base is None:
        return name
    computes = _TOLD_BY.search(plain, base.end())
    return f"{base[0]}<{computes[0]}>" if computes else base[0]
