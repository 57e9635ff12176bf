"""Verdicts: two summaries, two states, published claims, thresholds."""
