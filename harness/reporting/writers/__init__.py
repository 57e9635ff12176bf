"""One writer for each format."""
