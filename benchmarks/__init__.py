"""Speed and fidelity of the harness itself; run by hand, results in docs/speed.md."""
