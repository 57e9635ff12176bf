"""Estimators, intervals and comparisons of numbers: pure functions."""
