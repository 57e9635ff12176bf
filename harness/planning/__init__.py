"""From a configuration to the list of cases: config.py reads and checks YAML, matrix.py expands it (pure)."""
