"""The tables of the reports, a module per subject: a function from the summary to a Table, and its lines for CSV."""
