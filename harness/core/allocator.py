"""What chooses or tunes the memory allocator of a process from outside: it changes times, so it belongs to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ALLOCATOR = "memory allocator"
"""Name of the build fact."""

_PRELOADED = ("jemalloc", "tcmalloc", "mimalloc")


def allocator_settings(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """{ALLOCATOR: settings as the shell has them}; empty where the C library's own allocator runs as it is.

    Source: mallopt(3) for MALLOC_…, the GNU C library's manual for GLIBC_TUNABLES.
    """
    told = [f"{name}={variables[name]}" for name in sorted(variables) if name.startswith("MALLOC_")]
    tunables = variables.get("GLIBC_TUNABLES", "")
    if "glibc.malloc." in tunables:
        told.append(f"GLIBC_TUNABLES={tunables}")
    files = [Path(name).name for name in variables.get("LD_PRELOAD", "").replace(":", " ").split()]
    told += [f"LD_PRELOAD={name}" for name in files if any(known in name for known in _PRELOADED)]
    return {ALLOCATOR: ", ".join(told)} if told else {}
