"""Charts: a module per chart builds its specification from rows; one drawer makes PNG and SVG, one the page's plots."""
