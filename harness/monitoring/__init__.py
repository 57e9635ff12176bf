"""What is read beside a measurement: CPUs, the GPU, energy."""
