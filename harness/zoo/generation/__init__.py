"""Models that generate: what they can, their prompts, and what fp32 eager answers."""

LEAST_REFERENCED = 2
"""Fewest prompts that the reference answers."""
MOST_WITH_LOGITS = 4
"""Most of them whose logits it has, which each process compares."""
