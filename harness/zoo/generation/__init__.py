"""Models that generate: what they can, their prompts, and what fp32 eager answers."""
