"""From raw records to rows: admission, figures, checks, flags and grades."""
