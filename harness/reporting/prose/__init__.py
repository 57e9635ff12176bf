"""Sentences of the reports, derived from the rows by rules."""
