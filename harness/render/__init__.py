"""Summary → text and figures, as pure functions."""
