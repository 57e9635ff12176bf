"""Figures, tables as data, and one writer for each format."""
