"""Poolings in NHWC and fp16 by cudnnPoolingForward, and by kernels of our own (pooling.cu).

The graph API of Python has no node for them. In ResNet-50 at batch 128 cuDNN's max pooling takes 156 µs on an H200 for
257 MB that it reads and writes.

Source: cuDNN's API reference, ops library (cudnnSetPooling2dDescriptor, cudnnPoolingForward).
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_void_p
from pathlib import Path
from typing import Any

from pycuda import driver

from harness.backends.cudnn.layer_plan import Extents, Pooling
from harness.core.errors import CaseError

_NHWC, _HALF, _PROPAGATE_NAN = 1, 2, 1
_MODES = {"max": 0, "average": 2}
"""CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING."""


KERNELS = Path(__file__).with_name("pooling.ptx")
"""Made from pooling.cu, which has the command. The driver compiles it for its GPU; no compiler is needed to measure."""
OLDEST = (8, 0)
"""Compute capability that the kernels need."""
GROUP = 8
"""Channels of a thread."""
_THREADS = 256


class OwnPooling:
    """A pooling by our own kernel. fits: whether it can run these extents."""

    def __init__(self, module: Any, step: Pooling, source: Extents, result: Extents) -> None:
        """module: of load_kernels()."""
        (n, channels, *size), out = source, result[2:]
        small = step.kind == "max" and step.window == (3, 3)
        self._function = module.get_function(f"{step.kind}_pooling" + ("_3x3" if small else ""))
        self._function.prepare("PP" + "i" * 12)
        groups = channels // GROUP
        places = n * out[0] * out[1] * groups
        self._grid = (-(-places // _THREADS), 1)
        self._shape = (places, groups, *size, *out, *step.window, *step.stride, *step.padding)

    @staticmethod
    def fits(source: Extents, result: Extents) -> bool:
        """Whether its groups of channels and its 32-bit index can hold them."""
        places = result[0] * result[1] * result[2] * result[3] // GROUP
        return source[1] % GROUP == 0 and places < 1 << 31

    def launch(self, stream: Any, source: int, result: int) -> None:
        """Enqueue; addresses of the two values on the device."""
        self._function.prepared_async_call(self._grid, (_THREADS, 1, 1), stream, source, result, *self._shape)


def load_kernels() -> Any:
    """Our kernels as a module of this GPU; None on one that is older than them: cuDNN's are used there.

    Raises CaseError where the driver refuses them.
    """
    if driver.Device(0).compute_capability() < OLDEST:
        return None
    try:
        return driver.module_from_file(str(KERNELS))
    except driver.Error as error:
        raise CaseError(
            f"The GPU's driver does not take {KERNELS.name}: {error}.", "Update the driver, or leave cudnn out."
        ) from error


class PoolingCall:
    """The descriptors of one pooling; launch() enqueues it on the stream of the handle."""

    def __init__(self, step: Pooling, source: Extents, result: Extents) -> None:
        # Already loaded by the frontend: the loader gives the same library for its name.
        self._library = ctypes.CDLL("libcudnn.so.9")
        self._source, self._result, self._pooling = c_void_p(), c_void_p(), c_void_p()
        for descriptor, extents in ((self._source, source), (self._result, result)):
            self._call("cudnnCreateTensorDescriptor", byref(descriptor))
            self._call("cudnnSetTensor4dDescriptor", descriptor, _NHWC, _HALF, *extents)
        self._call("cudnnCreatePoolingDescriptor", byref(self._pooling))
        self._call(
            "cudnnSetPooling2dDescriptor",
            self._pooling,
            _MODES[step.kind],
            _PROPAGATE_NAN,
            *step.window,
            *step.padding,
            *step.stride,
        )
        self._alpha, self._beta = c_float(1.0), c_float(0.0)

    def launch(self, handle: int, source: int, result: int) -> None:
        """Enqueue; addresses of the two values on the device."""
        self._call(
            "cudnnPoolingForward",
            c_void_p(handle),
            self._pooling,
            byref(self._alpha),
            self._source,
            c_void_p(source),
            byref(self._beta),
            self._result,
            c_void_p(result),
        )

    def close(self) -> None:
        """Free the descriptors."""
        self._call("cudnnDestroyPoolingDescriptor", self._pooling)
        for descriptor in (self._source, self._result):
            self._call("cudnnDestroyTensorDescriptor", descriptor)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            words = self._library.cudnnGetErrorString
            words.restype = ctypes.c_char_p
            raise CaseError(
                f"cuDNN refused a pooling: {name}: {words(status).decode()}.", "Leave cudnn out for this model."
            )
