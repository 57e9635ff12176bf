"""A run that is at work, for the terminal and the browser."""
