"""One module for each table of the reports: a function from the summary to a Table, and its lines for CSV."""
