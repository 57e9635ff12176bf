"""ONNX files: written, varied, quantised, checked."""
