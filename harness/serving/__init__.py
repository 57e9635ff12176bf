"""Load in theory: arrivals, batching, queues, replay of measured service times, verdicts (pure; NumPy only)."""
