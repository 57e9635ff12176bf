"""Facts about this machine: environment, GPU, limits, processes, version control."""
