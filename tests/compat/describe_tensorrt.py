"""What a TensorRT offers: its names, and the names of every class, as JSON. For any interpreter that can import it.

    python-tensorrt tests/compat/describe_tensorrt.py > tests/compat/tensorrt-8.6.0.json

made the list of 8.6.0, whose wheel is too large to fetch for a test. It needs no GPU.
"""

from __future__ import annotations

import json
import sys

try:
    import tensorrt
except ImportError:
    import tensorrt_bindings as tensorrt  # the wheel with the bindings alone


def public(thing: object) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith("_"))


classes = {name: public(thing) for name, thing in vars(tensorrt).items() if isinstance(thing, type)}
json.dump(
    {"version": tensorrt.__version__, "module": public(tensorrt), "classes": dict(sorted(classes.items()))},
    sys.stdout,
    indent=1,
)
sys.stdout.write("\n")
