"""Live progress of a run, in the terminal and the browser."""
