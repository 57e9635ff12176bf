"""The families of models by origin, one file for each."""
