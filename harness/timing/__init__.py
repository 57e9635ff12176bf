"""Code that runs in the measured process: the clock, the loop, the modes, one session per case."""
