"""Writers, one for each format."""
