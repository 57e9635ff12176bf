"""Sentences of the reports, by rules from the rows."""
