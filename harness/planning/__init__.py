"""Turns a configuration into the list of cases: config.py reads and checks YAML, matrix.py expands it (pure)."""
