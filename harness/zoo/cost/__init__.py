"""What a model costs: arithmetic, memory traffic, parameters."""
