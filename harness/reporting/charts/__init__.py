"""Charts: a module per subject builds specifications from rows; one drawer makes PNG and SVG, one the page's plots."""
