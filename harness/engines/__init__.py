"""TensorRT engines: what a plan asks for (request), how one is built (build), and the versions' differences (api)."""
