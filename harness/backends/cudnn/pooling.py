"""Poolings by cudnnPoolingForward, in NHWC and fp16: the graph API of Python has no node for them.

Source: cuDNN's API reference, ops library (cudnnSetPooling2dDescriptor, cudnnPoolingForward).
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_void_p

from harness.backends.cudnn.layer_plan import Extents, Pooling
from harness.core.errors import CaseError

_NHWC, _HALF, _PROPAGATE_NAN = 1, 2, 1
_MODES = {"max": 0, "average": 2}
"""CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING."""


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
        self._one, self._zero = c_float(1.0), c_float(0.0)

    def launch(self, handle: int, source: int, result: int) -> None:
        """Enqueue; addresses of the two values on the device."""
        self._call(
            "cudnnPoolingForward",
            c_void_p(handle),
            self._pooling,
            byref(self._one),
            self._source,
            c_void_p(source),
            byref(self._zero),
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
