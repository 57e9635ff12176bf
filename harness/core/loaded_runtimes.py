"""Thread pools and math libraries that a process really loaded, for two of a kind fight for the cores."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

RUNTIMES = "loaded runtimes"
"""Name of the build fact."""

_RUNTIME = re.compile(r"lib(gomp|iomp5|omp|tbb|mkl_(rt|core|\w*thread)|\w*openblas\w*|blis|dnnl|onednn)\b[^/]*\.so")


def loaded_runtimes(maps: Path = Path("/proc/self/maps")) -> dict[str, str]:
    """OpenMP, TBB and BLAS libraries that this process has loaded, by file: two of a kind fight over its threads.

    What a wheel was built with says little: which file the loader took decides. Empty where the kernel does not tell.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return {}
    paths = {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    found = [path for path in paths if _RUNTIME.match(path.rpartition("/")[2])]
    return {RUNTIMES: ", ".join(sorted(map(_without_place, found)))} if found else {}


def _without_place(path: str) -> str:
    """The end of a library's path that says whose copy it is. Results are published: no folder of this machine."""
    _, site, below = path.rpartition("/site-packages/")
    if site:
        return below
    roots = {os.path.realpath(entry) for entry in (*sys.path, sys.prefix, sys.base_prefix) if entry} - {"/"}
    for root in sorted(roots, key=len, reverse=True):
        if path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/")
    return f"(elsewhere)/{path.rpartition('/')[2]}"
