"""Verdicts on figures (pure)."""
