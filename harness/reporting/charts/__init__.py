"""Charts: a module for each builds its specification from rows; one drawer makes PNG and SVG of it, one the page's."""
