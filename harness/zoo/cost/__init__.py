"""The cost of a model: arithmetic, memory traffic, parameters."""
