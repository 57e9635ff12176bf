"""TensorRT's backend, its engines and its profiler."""
