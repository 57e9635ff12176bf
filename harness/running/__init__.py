"""The run stage at work: workers, the monitor, one turn after the other."""
