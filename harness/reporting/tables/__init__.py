"""The tables of the reports, a module per table: a function from the summary to a Table, and its lines for CSV."""
