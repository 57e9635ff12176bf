"""The only place that reads a clock, and the pure functions that judge what it read."""
