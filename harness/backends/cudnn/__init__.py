"""cuDNN's graph API: convolution, bias, addition and activation in one kernel, built from an ONNX file."""
