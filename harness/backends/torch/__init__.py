"""PyTorch's three backends and their profilers."""
