"""The entry of the backend. Every stage imports this module, so it imports neither onnx nor the backend."""

from __future__ import annotations

from harness.backends import BackendInfo

ONNX_REFERENCE = BackendInfo(
    target="inferometer_example.onnx_reference:OnnxReference",
    summary="ONNX's reference evaluator: NumPy, node by node, made to be right and not to be fast",
    requires=("onnx",),
    preload=("onnx.reference",),
    precisions={"cpu": ("fp32",)},
    artifact="onnx",
    not_offered=dict.fromkeys(("tf32", "fp16", "bf16", "int8"), "the example runs the fp32 file alone"),
)
