"""ONNX Runtime's backends and their profilers."""
